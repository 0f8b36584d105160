//! Hello (RFC 3209 §5.3): whether a neighbor is up, and whether it restarted.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::rng::Random;

use super::config::HelloConfig;
use super::view::HelloState;
use crate::wire::Hello;

/// Hello state of one neighbor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// This node's instance towards the neighbor; never 0.
    ours: u32,
    /// The neighbor's last instance; 0: not known.
    theirs: u32,
    /// Time of the last valid Hello.
    last_valid: Time,
    /// Time of the neighbor's last request.
    last_request: Option<Time>,
    /// Time of the next request to the neighbor.
    due: Option<Time>,
    /// Requests in a row with a wrong instance of this node.
    wrong: u32,
    /// When the neighbor was lost last, and how long this node has no Hello with it after that.
    lost: Option<Time>,
    pause: Duration,
}

/// First pause of a neighbor that is lost again within [`SOON`] pauses, and the longest one. After a loss all state is sent again,
/// and two forged Hellos are enough to cause a loss.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// The number of pauses in which another loss lengthens the pause.
const SOON: u32 = 4;

/// Result of a Hello or of silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing changed.
    Same,
    /// The neighbor is up, for the first time or again.
    Up,
    /// The neighbor restarted, lost this node, or is gone.
    Lost,
}

fn instance(rng: &mut Random, not: u32) -> u32 {
    loop {
        let new = rng.u32();
        if new != 0 && new != not {
            return new;
        }
    }
}

impl State {
    pub(crate) fn new(now: Time, rng: &mut Random) -> Self {
        Self {
            ours: instance(rng, 0),
            theirs: 0,
            last_valid: now,
            last_request: None,
            due: None,
            wrong: 0,
            lost: None,
            pause: Duration::ZERO,
        }
    }

    /// Forgets what Hellos of the neighbor have shown. The instance of this node stays: with a new one the neighbor would see a restart.
    pub(crate) fn forget(&mut self, now: Time) {
        let Self { ours, due, .. } = *self;
        *self = Self {
            ours,
            theirs: 0,
            last_valid: now,
            last_request: None,
            due,
            wrong: 0,
            lost: None,
            pause: Duration::ZERO,
        };
    }

    /// What is shown of it.
    pub(crate) const fn view(&self) -> HelloState {
        match (self.theirs, self.lost) {
            (0, None) => HelloState::Never,
            (0, Some(_)) => HelloState::Lost,
            _ => HelloState::Up,
        }
    }

    /// Time of the next request.
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Starts to send requests.
    pub(crate) const fn start(&mut self, now: Time) {
        if self.due.is_none() {
            self.due = Some(now);
            self.last_valid = now;
        }
    }

    /// The Hello that answers a request; `None` in a pause.
    pub(crate) fn answer(&self, now: Time) -> Option<Hello> {
        let hello = Hello { ack: true, src_instance: self.ours, dst_instance: self.theirs };
        (!self.pauses(now)).then_some(hello)
    }

    /// Whether this node neither takes nor sends Hellos: the neighbor was lost several times in a row.
    fn pauses(&self, now: Time) -> bool {
        self.lost.is_some_and(|lost| now.since(lost) < self.pause)
    }

    /// Resets the state after a loss. This node takes another instance and keeps it until the next loss (RFC 3209
    /// §5.3).
    fn lose(&mut self, now: Time, rng: &mut Random) -> Verdict {
        self.wrong = 0;
        if self.theirs == 0 {
            return Verdict::Same; // it was not up
        }
        self.theirs = 0;
        self.ours = instance(rng, self.ours);
        let soon = self.pause.max(FIRST_PAUSE) * SOON;
        let again = self.lost.is_some_and(|lost| now.since(lost) < soon);
        self.pause = if again { (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) } else { Duration::ZERO };
        self.lost = Some(now);
        Verdict::Lost
    }

    /// Handles a Hello of the neighbor (RFC 3209 §5.3).
    pub(crate) fn received(
        &mut self,
        now: Time,
        hello: &Hello,
        config: &HelloConfig,
        rng: &mut Random,
    ) -> Verdict {
        if !hello.ack {
            self.last_request = Some(now);
        }
        if self.pauses(now) {
            return Verdict::Same;
        }
        let up = self.theirs != 0;
        if up && hello.src_instance != self.theirs {
            return self.lose(now, rng);
        }
        if hello.src_instance == 0 {
            return Verdict::Same;
        }
        if !up && ![0, self.ours].contains(&hello.dst_instance) {
            // The neighbor sent this before it received the new instance. It will take another instance too. If this
            // one were accepted, two nodes whose messages cross would lose each other for ever.
            return Verdict::Same;
        }
        if hello.dst_instance == self.ours {
            self.wrong = 0;
        } else if up && hello.ack {
            return self.lose(now, rng);
        } else if up && hello.dst_instance != 0 {
            self.wrong += 1;
            if self.wrong >= config.wrong.max(1) {
                return self.lose(now, rng);
            }
        }
        self.theirs = hello.src_instance;
        self.last_valid = now;
        if up { Verdict::Same } else { Verdict::Up }
    }

    /// Handles the timer: the result of silence, and the request to be sent. No request is sent if the neighbor sent
    /// one within the last interval.
    pub(crate) fn tick(
        &mut self,
        now: Time,
        config: &HelloConfig,
        rng: &mut Random,
    ) -> (Verdict, Option<Hello>) {
        if self.due.is_none_or(|due| due > now) {
            return (Verdict::Same, None);
        }
        let patience = Duration::try_from_secs_f64(config.interval.as_secs_f64() * config.misses.max(1.0));
        let silent = now.since(self.last_valid) >= patience.unwrap_or(Duration::MAX);
        let verdict = if silent { self.lose(now, rng) } else { Verdict::Same };
        self.due = Some(now + config.interval);
        let suppressed =
            self.last_request.is_some_and(|last_request| now.since(last_request) < config.interval);
        let request = Hello { ack: false, src_instance: self.ours, dst_instance: self.theirs };
        (verdict, (!suppressed && !self.pauses(now)).then_some(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: HelloConfig = HelloConfig { interval: Duration::from_millis(5), misses: 3.5, wrong: 3 };

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn hello(ack: bool, src_instance: u32, dst_instance: u32) -> Hello {
        Hello { ack, src_instance, dst_instance }
    }

    fn up(rng: &mut Random) -> State {
        let mut state = State::new(ms(0), rng);
        state.start(ms(0));
        assert_eq!(state.received(ms(0), &hello(true, 7, state.ours), &CONFIG, rng), Verdict::Up);
        state
    }

    /// Proves RSVPX-3209-5.2-02 and RSVPX-3209-5.3-07.
    #[test]
    fn instances() {
        let mut rng = Random::from_number(1);
        let mut state = up(&mut rng);
        let first = state.ours;
        assert_ne!(first, 0);
        assert_eq!(state.tick(ms(0), &CONFIG, &mut rng).1, Some(hello(false, first, 7)));
        // Another instance: restarted.
        assert_eq!(state.received(ms(1), &hello(true, 8, first), &CONFIG, &mut rng), Verdict::Lost);
        let second = state.ours;
        assert_ne!(second, first);
        assert_eq!(state.tick(ms(5), &CONFIG, &mut rng).1, Some(hello(false, second, 0)), "none is known");
        assert_eq!(
            state.tick(ms(10), &CONFIG, &mut rng).1,
            Some(hello(false, second, 0)),
            "and ours is kept"
        );
        assert_eq!(state.received(ms(11), &hello(true, 8, second), &CONFIG, &mut rng), Verdict::Up);
        assert_eq!(state.answer(ms(11)), Some(hello(true, second, 8)));
    }

    /// Proves RSVPX-3209-5.3-02: the default interval, and no request where the neighbor asks.
    #[test]
    fn requests() {
        assert_eq!(HelloConfig::default().interval, Duration::from_millis(5));
        let mut rng = Random::from_number(1);
        let mut state = up(&mut rng);
        let ours = state.ours;
        assert!(state.tick(ms(0), &CONFIG, &mut rng).1.is_some());
        assert!(state.tick(ms(4), &CONFIG, &mut rng).1.is_none(), "not yet");
        assert_eq!(state.received(ms(4), &hello(false, 7, ours), &CONFIG, &mut rng), Verdict::Same);
        assert!(state.tick(ms(5), &CONFIG, &mut rng).1.is_none(), "it last_request 1 ms ago");
        assert!(state.tick(ms(10), &CONFIG, &mut rng).1.is_some());
    }

    /// Proves RSVPX-3209-5.3-04 and RSVPX-3209-5.3-05.
    #[test]
    fn lost_by_wrong_instances() {
        let mut rng = Random::from_number(2);
        for src in [0, 8] {
            let mut state = up(&mut rng);
            let ours = state.ours;
            assert_eq!(state.received(ms(1), &hello(false, src, ours), &CONFIG, &mut rng), Verdict::Lost);
        }
        let mut state = up(&mut rng);
        let ours = state.ours;
        assert_eq!(
            state.received(ms(1), &hello(true, 7, ours ^ 1), &CONFIG, &mut rng),
            Verdict::Lost,
            "in an ACK"
        );
        let mut state = up(&mut rng);
        let ours = state.ours;
        let wrong = hello(false, 7, ours ^ 1);
        assert_eq!(state.received(ms(1), &wrong, &CONFIG, &mut rng), Verdict::Same);
        assert_eq!(state.received(ms(2), &wrong, &CONFIG, &mut rng), Verdict::Same);
        assert_eq!(
            state.received(ms(3), &hello(false, 7, 0), &CONFIG, &mut rng),
            Verdict::Same,
            "none yet is not wrong"
        );
        assert_eq!(state.received(ms(4), &wrong, &CONFIG, &mut rng), Verdict::Lost, "in three requests");
        assert_eq!(state.received(ms(5), &wrong, &CONFIG, &mut rng), Verdict::Same, "once");
        assert_eq!(state.received(ms(6), &hello(false, 7, 0), &CONFIG, &mut rng), Verdict::Up);
    }

    /// Two forged Hellos cause a loss. Losses become rare, and a neighbor that is there is up again after the pause.
    #[test]
    fn losses_in_a_row_become_rare() {
        let mut rng = Random::from_number(4);
        let mut state = up(&mut rng);
        let mut lost = 0;
        for at in 1..120_000 {
            let forged = hello(false, if at % 2 == 0 { 7 } else { 8 }, 0);
            lost += u32::from(state.received(ms(at), &forged, &CONFIG, &mut rng) == Verdict::Lost);
        }
        assert!((4..=10).contains(&lost), "{lost}");
        let later = ms(120_000) + LONGEST_PAUSE;
        assert!(state.answer(later).is_some() && state.answer(ms(120_000)).is_none());
        let valid = hello(true, 7, state.ours);
        state.received(later, &valid, &CONFIG, &mut rng);
        assert_eq!(state.view(), HelloState::Up);
        // A single loss after a while has no pause.
        let restarted = later + LONGEST_PAUSE * SOON;
        assert_eq!(state.received(restarted, &hello(false, 9, 0), &CONFIG, &mut rng), Verdict::Lost);
        assert_eq!(state.received(restarted, &hello(false, 9, 0), &CONFIG, &mut rng), Verdict::Up);
    }

    /// Proves RSVPX-3209-5.3-06: three and a half intervals of silence.
    #[test]
    fn lost_by_silence() {
        let mut rng = Random::from_number(3);
        let mut state = up(&mut rng);
        for at in [0, 5, 10, 15, 17] {
            assert_eq!(state.tick(ms(at), &CONFIG, &mut rng).0, Verdict::Same, "at {at} ms");
        }
        assert_eq!(state.tick(ms(20), &CONFIG, &mut rng).0, Verdict::Lost);
        assert_eq!(state.tick(ms(25), &CONFIG, &mut rng).0, Verdict::Same, "once");
    }
}
