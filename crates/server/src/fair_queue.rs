//! A number of seats for requests, handed out fairly: whoever waits stands in the queue of its user, and a seat that becomes free
//! goes to the next user in turn. One user with a thousand requests delays another's by one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Most requests of one user that wait.
const QUEUE_MAX: usize = 1000;
/// Most that wait in all.
const WAITING_MAX: usize = 4000;

/// The seats.
#[derive(Clone)]
pub(crate) struct FairQueue(Arc<Mutex<Queue>>);

struct Queue {
    free: usize,
    /// Users with requests that wait, the next one first. Each is there once.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Seat>>>,
    count: usize,
}

/// One seat, free again when this is dropped.
pub(crate) struct Seat(Option<FairQueue>);

/// No seat became free in time, or too many wait already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSeat;

impl FairQueue {
    pub(crate) fn new(seats: usize) -> Self {
        let (turns, waiting) = (VecDeque::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Queue { free: seats, turns, waiting, count: 0 })))
    }

    /// A seat for a request of `user`, at once or within `patience`.
    pub(crate) async fn take(&self, user: &str, patience: Duration) -> Result<Seat, NoSeat> {
        let turn = {
            let mut queue = self.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Ok(Seat(Some(self.clone())));
            }
            queue.wait(user)?
        };
        // Who gives up drops its end, and a seat in it goes on to the next.
        match tokio::time::timeout(patience, turn).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) | Err(_) => Err(NoSeat),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn wait(&mut self, user: &str) -> Result<oneshot::Receiver<Seat>, NoSeat> {
        if self.count >= WAITING_MAX {
            self.forget_those_who_left();
        }
        if !self.waiting.contains_key(user) {
            let user: Arc<str> = user.into();
            self.turns.push_back(Arc::clone(&user));
            self.waiting.insert(user, VecDeque::new());
        }
        let line = self.waiting.get_mut(user).ok_or(NoSeat)?;
        if line.len() >= QUEUE_MAX {
            let before = line.len();
            line.retain(|turn| !turn.is_closed());
            self.count -= before - line.len();
        }
        if line.len() >= QUEUE_MAX || self.count >= WAITING_MAX {
            return Err(NoSeat);
        }
        let (turn, seat) = oneshot::channel();
        line.push_back(turn);
        self.count += 1;
        Ok(seat)
    }

    fn forget_those_who_left(&mut self) {
        self.waiting.values_mut().for_each(|line| line.retain(|turn| !turn.is_closed()));
        self.count = self.waiting.values().map(VecDeque::len).sum();
        self.waiting.retain(|_, line| !line.is_empty());
        self.turns.retain(|user| self.waiting.contains_key(user));
    }

    /// Whoever is next.
    fn next(&mut self) -> Option<oneshot::Sender<Seat>> {
        while let Some(user) = self.turns.pop_front() {
            let Some(line) = self.waiting.get_mut(&user) else { continue };
            let turn = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&user);
            } else {
                self.turns.push_back(user);
            }
            if let Some(turn) = turn {
                self.count -= 1;
                return Some(turn);
            }
        }
        None
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(seats) = self.0.take() else { return };
        loop {
            let turn = {
                let mut queue = seats.lock();
                let Some(turn) = queue.next() else {
                    queue.free += 1;
                    return;
                };
                turn
            };
            match turn.send(Seat(Some(seats.clone()))) {
                Ok(()) => return,
                // It left meanwhile. Emptied first, so that dropping it does not come back here.
                Err(mut unused) => unused.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    #[tokio::test(start_paused = true)]
    async fn seats_go_to_users_in_turn_however_many_requests_one_of_them_has() {
        let seats = FairQueue::new(1);
        let held = seats.take("busy", LONG).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for user in ["busy", "busy", "busy", "busy", "quiet", "third"] {
            let (seats, order) = (seats.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let seat = seats.take(user, LONG).await.unwrap();
                order.lock().unwrap().push(user);
                drop(seat);
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["busy", "quiet", "third", "busy", "busy", "busy"]);
        assert_eq!(seats.lock().free, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn seat_is_not_lost_with_those_who_give_up_waiting() {
        let seats = FairQueue::new(1);
        let held = seats.take("a", LONG).await.unwrap();
        for _ in 0..3 {
            assert_eq!(seats.take("b", Duration::from_secs(1)).await.err(), Some(NoSeat));
        }
        drop(held);
        let (free, waiting) = {
            let queue = seats.lock();
            (queue.free, queue.count)
        };
        assert_eq!((free, waiting), (1, 0));
        drop(seats.take("c", LONG).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn queue_of_one_user_is_bounded_and_has_room_when_some_leave() {
        let seats = FairQueue::new(0);
        let mut waiting = Vec::new();
        for _ in 0..QUEUE_MAX {
            waiting.push(seats.lock().wait("a").unwrap());
        }
        assert_eq!(seats.take("a", LONG).await.err(), Some(NoSeat), "at once");
        assert!(seats.lock().wait("b").is_ok(), "others have queues of their own");
        waiting.pop();
        assert!(seats.lock().wait("a").is_ok());
    }
}
