// A web server that leaves well. Node.js 18.2 or newer, no packages.
//
// GET / answers "ok"; GET /MS takes so many milliseconds for it; GET /ready is for the readiness probe.
'use strict';

const http = require('node:http');

// How long connections that were kept alive may bring one more request after TERM.
const LINGER_MOST = 5_000;
// When everything is cut off, counted from TERM: less than terminationGracePeriodSeconds (30).
const DRAIN_MOST = 25_000;
// How long a request may ask the server to take.
const REQUEST_MOST = 10_000;

let isLeaving = false;
let open = 0;

const say = (text) => console.log(`${new Date().toISOString().slice(11, 23)} ${text}`);

const server = http.createServer((request, response) => {
  const answer = () => {
    // Looked at after the work: TERM may have come meanwhile.
    if (isLeaving) response.setHeader('Connection', 'close');
    const isReady = request.url !== '/ready' || !isLeaving;
    response.statusCode = isReady ? 200 : 503;
    response.end(isReady ? 'ok' : 'leaving');
  };
  const takes = Math.min(Number(request.url.slice(1)) || 0, REQUEST_MOST);
  if (takes > 0) setTimeout(answer, takes);
  else answer();
});

// Five seconds is the default, and shorter than that of most clients and proxies: then it is the server that hangs up, and a
// request may be on its way. The longer patience should be the server's.
server.keepAliveTimeout = 65_000;
server.headersTimeout = 66_000;

server.on('connection', (socket) => {
  open += 1;
  socket.once('close', () => {
    open -= 1;
    if (isLeaving && open === 0) stop();
  });
});

let lingering;

// Process 1 has no default for TERM: without this line the kernel drops the signal, and KILL ends the grace.
process.once('SIGTERM', leave);
process.once('SIGINT', leave);

function leave() {
  isLeaving = true;
  say(`asked to leave: ${open} connections are open`);
  // Since Node.js 19 close() also closes idle connections, at once, and a request may be on its way on one of them. So every
  // answer says "Connection: close" first, and the clients hang up by themselves.
  if (open === 0) stop();
  else lingering = setTimeout(stop, LINGER_MOST);
  // unref: a timer that only waits for the worst must not keep the process alive.
  setTimeout(() => {
    say(`left: ${open} connections are cut off`);
    server.closeAllConnections();
  }, DRAIN_MOST).unref();
}

function stop() {
  if (!server.listening) return;
  clearTimeout(lingering);
  // Calls back when the last connection has ended. Before Node.js 19 an idle one would hold it up.
  server.close(() => say('left: every request is answered'));
  server.closeIdleConnections();
  // No process.exit(): it would cut off what is still being written. With nothing left to do, the process ends with code 0.
}

server.listen(8080, () => say('ready'));
