//! The machine is asked to go down through logind: it waits for us as long as we hold its lock, and says when to begin.
//!
//! A thread of its own listens on the system bus. Where there is none, shutdowns are heard of by SIGPWR alone.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::dbus::{Call, DbusError, Message, SystemBus, bus_call};

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// How long to wait before a bus that broke is looked for again.
const AGAIN: Duration = Duration::from_secs(5);

/// What logind says.
#[derive(Debug)]
pub(crate) enum Announcement {
    /// The machine goes down as soon as this is dropped, or logind has waited long enough.
    GoingDown(Option<OwnedFd>),
    /// It does not, after all.
    CalledOff,
}

/// Listens for as long as the process lives. `needed` is how long pods may take to leave.
pub(crate) fn listen(needed: Duration) -> mpsc::UnboundedReceiver<Announcement> {
    let (told, announcements) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new().name("logind".to_owned()).spawn(move || {
        let mut complained = false;
        while !told.is_closed() {
            let heard = supervision::catch_blocking("logind", || follow(needed, &told));
            match heard.unwrap_or_else(|panic| Err(DbusError::Broke(panic))) {
                Ok(()) => return info!("there is no system bus; a shutdown of the machine is told by SIGPWR alone"),
                Err(error) if !complained => {
                    complained = true;
                    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    warn!(%error, source, "cannot reach logind; retrying");
                }
                Err(_) => {}
            }
            std::thread::sleep(AGAIN);
        }
    });
    if let Err(error) = thread {
        warn!(%error, "cannot watch logind");
    }
    announcements
}

/// Listens until the connection breaks. `Ok` if there is nothing to connect to.
fn follow(needed: Duration, told: &mpsc::UnboundedSender<Announcement>) -> Result<(), DbusError> {
    let Some(mut bus) = SystemBus::system()? else { return Ok(()) };
    let announced = format!("type='signal',sender='{NAME}',interface='{MANAGER}',member='PrepareForShutdown'");
    let moved = format!("type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{NAME}'");
    for rule in [&announced, &moved] {
        bus.call(&bus_call("AddMatch", &[rule]))?;
    }
    let mut lock = Some(inhibit(&mut bus, needed)?);
    let mut owner = owner(&mut bus)?;
    loop {
        let message = bus.next()?;
        if message.is_signal("org.freedesktop.DBus", "NameOwnerChanged") && message.sender == "org.freedesktop.DBus" {
            // A logind that was started anew knows nothing of the lock.
            drop(lock.take());
            owner = message.words().pop().unwrap_or_default();
            if !owner.is_empty() {
                lock = Some(inhibit(&mut bus, needed)?);
            }
        } else if message.is_signal(MANAGER, "PrepareForShutdown") && message.sender == owner {
            // Anybody may send us such a signal; only logind's counts.
            let news = match message.yes() {
                Some(true) => Announcement::GoingDown(lock.take()),
                Some(false) => {
                    lock = Some(inhibit(&mut bus, needed)?);
                    Announcement::CalledOff
                }
                None => continue,
            };
            if told.send(news).is_err() {
                return Ok(());
            }
        }
    }
}

/// The unique name of logind, which the bus gives and nobody can forge.
fn owner(bus: &mut SystemBus) -> Result<String, DbusError> {
    Ok(bus.call(&bus_call("GetNameOwner", &[NAME]))?.words().pop().unwrap_or_default())
}

/// Asks logind to wait for us.
fn inhibit(bus: &mut SystemBus, needed: Duration) -> Result<OwnedFd, DbusError> {
    let words = ["shutdown", "adieu", "pods leave within their grace", "delay"];
    let mut answer = bus.call(&Call { to: NAME, path: PATH, interface: MANAGER, member: "Inhibit", words: &words })?;
    let lock = answer.descriptors.pop().ok_or(DbusError::Odd("logind gave no lock"))?;
    let waits = waits_at_most(bus)?;
    if waits < needed {
        warn!(
            ?waits,
            ?needed,
            "logind waits less than pods may take to leave: set InhibitDelayMaxSec={} in /etc/systemd/logind.conf.d/adieu.conf",
            needed.as_secs_f64().ceil()
        );
    }
    info!(?waits, "logind waits for pods when the machine goes down");
    Ok(lock)
}

fn waits_at_most(bus: &mut SystemBus) -> Result<Duration, DbusError> {
    let (interface, words) = ("org.freedesktop.DBus.Properties", [MANAGER, "InhibitDelayMaxUSec"]);
    let answer: Message = bus.call(&Call { to: NAME, path: PATH, interface, member: "Get", words: &words })?;
    answer.number_within().map(Duration::from_micros).ok_or(DbusError::Odd("no number"))
}
