// A web server with a worker beside it that leaves well. Standard library only, Go 1.19 or newer.
//
// GET / answers "ok"; GET /MS takes so many milliseconds for it; GET /ready is for the readiness probe.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// How long connections that were kept alive may bring one more request after TERM.
	lingerMost = 5 * time.Second
	// How long what is under way may take after that. Together less than terminationGracePeriodSeconds (30).
	drainMost = 20 * time.Second
	// How long a request may ask the server to take.
	requestMost = 10 * time.Second
)

var (
	leaving     atomic.Bool
	connections atomic.Int64
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	// From here on TERM ends the context instead of the process. After the call of restore a second TERM ends it at once.
	asked, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	server := &http.Server{Addr: ":8080", Handler: routes(), ConnState: count, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	worked := make(chan struct{})
	go func() { defer close(worked); work(asked) }()
	log.Print("ready")

	select {
	case err := <-failed:
		log.Fatal(err)
	case <-asked.Done():
	}
	restore()
	leaving.Store(true)
	log.Printf("asked to leave: %d connections are open", connections.Load())

	// Shutdown closes idle connections at once, and a request may be on its way on one of them. So every answer says
	// "Connection: close" first, and the clients hang up by themselves.
	until := time.Now().Add(lingerMost)
	for connections.Load() > 0 && time.Now().Before(until) {
		time.Sleep(20 * time.Millisecond)
	}
	deadline, cancel := context.WithTimeout(context.Background(), drainMost)
	defer cancel()
	// Shutdown returns when the last request is answered. ListenAndServe returns at once, so main must wait here.
	if err := server.Shutdown(deadline); err != nil {
		log.Printf("requests are cut off: %v", err)
	}
	select {
	case <-worked:
	case <-deadline.Done():
		log.Print("the worker is cut off")
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
	}
	log.Print("left: every request is answered, the worker has finished")
}

func routes() http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if leaving.Load() {
			answer.Header().Set("Connection", "close")
		}
		if request.URL.Path == "/ready" {
			if leaving.Load() {
				http.Error(answer, "leaving", http.StatusServiceUnavailable)
				return
			}
		} else if ms, err := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/")); err == nil && ms > 0 {
			takes := time.Duration(ms) * time.Millisecond
			if takes > requestMost {
				takes = requestMost
			}
			time.Sleep(takes)
			// TERM may have come meanwhile.
			if leaving.Load() {
				answer.Header().Set("Connection", "close")
			}
		}
		fmt.Fprint(answer, "ok")
	})
}

// count keeps the number of open connections; the server calls it at every change.
func count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		connections.Add(-1)
	}
}

// work does one item after another, and looks whether it is asked to leave between two, never in the middle of one.
func work(asked context.Context) {
	for item := 1; asked.Err() == nil; item++ {
		log.Printf("item %d begun", item)
		time.Sleep(700 * time.Millisecond)
		log.Printf("item %d finished", item)
		select {
		case <-asked.Done():
		case <-time.After(time.Second):
		}
	}
}
