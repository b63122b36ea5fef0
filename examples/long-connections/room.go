// Game rooms whose players stay for long, and players who move without missing anything. Standard library only, Go 1.19 or newer.
//
//	room serve              plays rounds of three seconds with whoever connects to port 7000
//	room play ADDRESS N     N players, until TERM; exits with 1 if one of them was thrown out
//
// A room speaks lines: "welcome ROOM", then "tick N" ten times a second, and "move" when it will not go on. A player says "leave".
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math/rand"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	tick  = 100 * time.Millisecond
	round = 3 * time.Second
	// Players are told to move within this time, one here and one there: the other rooms get them one by one.
	spread = 500 * time.Millisecond
	// How long a connection may take, and how long nothing may be heard on one.
	patience = 5 * time.Second
	// How many players a room takes.
	playersMost = 1000
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	asked, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve(asked)
	case len(os.Args) == 4 && os.Args[1] == "play":
		count, err := strconv.Atoi(os.Args[3])
		if err != nil || count < 1 || count > playersMost {
			log.Fatalf("%q is no number of players", os.Args[3])
		}
		play(asked, os.Args[2], count)
	default:
		log.Fatal("room serve | room play ADDRESS N")
	}
}

func serve(asked context.Context) {
	name, _ := os.Hostname()
	// The annotation adieu.dev/drain-signal names it: sent when new players are sure to go elsewhere, long before TERM.
	drained := make(chan os.Signal, 1)
	signal.Notify(drained, syscall.SIGUSR1)
	listener, err := net.Listen("tcp", ":7000")
	if err != nil {
		log.Fatal(err)
	}
	var players atomic.Int64
	isOver := make(chan struct{})
	log.Print("ready")
	go func() {
		for {
			player, err := listener.Accept()
			if err != nil {
				return
			}
			if players.Add(1) > playersMost {
				players.Add(-1)
				player.Close()
				continue
			}
			go func() {
				defer players.Add(-1)
				host(name, player, isOver)
			}()
		}
	}()
	began := time.Now()
	select {
	case <-drained:
		left := round - time.Since(began)%round
		log.Printf("drained: %d players finish their round of %.1f s more, then they move", players.Load(), left.Seconds())
		select {
		case <-time.After(left):
		case <-asked.Done():
		}
		close(isOver)
	case <-asked.Done():
	}
	// The platform waits for the last player with TERM, but never beyond the budget.
	<-asked.Done()
	log.Printf("left: %d players are thrown out", players.Load())
	listener.Close()
}

// host plays with one player until it leaves.
func host(room string, player net.Conn, isOver <-chan struct{}) {
	defer player.Close()
	left := make(chan struct{})
	go func() {
		defer close(left)
		// Whatever a player says, it leaves; whoever is gone has left, too.
		bufio.NewReaderSize(player, 64).ReadSlice('\n')
	}()
	say := func(format string, words ...any) bool {
		player.SetWriteDeadline(time.Now().Add(patience))
		_, err := fmt.Fprintf(player, format, words...)
		return err == nil
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	if !say("welcome %s\n", room) {
		return
	}
	var moves <-chan time.Time
	for number := 1; ; {
		select {
		case <-left:
			return
		case <-isOver:
			isOver = nil
			moves = time.After(time.Duration(rand.Int63n(int64(spread))))
		case <-moves:
			if !say("move\n") {
				return
			}
		case <-ticks.C:
			if !say("tick %d\n", number) {
				return
			}
			number++
		}
	}
}

func play(asked context.Context, address string, count int) {
	var moved, thrownOut atomic.Int64
	var all sync.WaitGroup
	for number := 1; number <= count; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			for asked.Err() == nil {
				if err := player(asked, address, number, &moved); err != nil && asked.Err() == nil {
					thrownOut.Add(1)
					log.Printf("player %d is thrown out: %v", number, err)
					time.Sleep(tick)
				}
			}
		}(number)
	}
	all.Wait()
	log.Printf("%d players moved %d times, %d were thrown out", count, moved.Load(), thrownOut.Load())
	if thrownOut.Load() > 0 {
		os.Exit(1)
	}
}

// A player's seat in a room.
type seat struct {
	connection net.Conn
	lines      *bufio.Reader
	room       string
}

func join(address string) (*seat, error) {
	connection, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	here := &seat{connection: connection, lines: bufio.NewReaderSize(connection, 256)}
	line, err := here.hear()
	if err != nil {
		connection.Close()
		return nil, err
	}
	here.room = strings.TrimPrefix(line, "welcome ")
	return here, nil
}

func (here *seat) hear() (string, error) {
	here.connection.SetReadDeadline(time.Now().Add(patience))
	line, err := here.lines.ReadSlice('\n')
	return strings.TrimSpace(string(line)), err
}

func (here *seat) leave() {
	fmt.Fprintln(here.connection, "leave")
	here.connection.Close()
}

// player plays until it is asked to stop, in one room after the other.
func player(asked context.Context, address string, number int, moved *atomic.Int64) error {
	here, err := join(address)
	if err != nil {
		return err
	}
	log.Printf("player %d plays in %s", number, here.room)
	for asked.Err() == nil {
		line, err := here.hear()
		if err != nil {
			here.connection.Close()
			return err
		}
		if line != "move" {
			continue
		}
		// The new seat first: there is no moment without one.
		there, err := join(address)
		if err != nil {
			here.connection.Close()
			return err
		}
		here.leave()
		log.Printf("player %d moved from %s to %s", number, here.room, there.room)
		moved.Add(1)
		here = there
	}
	here.leave()
	return nil
}
