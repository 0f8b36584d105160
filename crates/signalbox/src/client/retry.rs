//! Commands that hold something ask again for it after a loss.

use std::time::Duration;

use anyhow::Result;
use signalbox_api::retry::{Pace, Waits, spread};
use signalbox_api::v1;

use super::Termination;
use crate::arguments::microseconds;
use crate::exit::{Exit, NoDaemon, Refusal};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The command is over.
    Over(Exit),
    /// It was refused, or is lost.
    Lost(Loss),
}

/// What follows an attempt.
#[derive(Debug)]
pub(crate) enum AfterAttempt {
    /// The command is over.
    Over(Exit),
    /// The next attempt, after this time.
    Retry(v1::Retrying, Duration),
}

/// Why something is lost, or was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// For people.
    reason: String,
    pace: Pace,
}

impl Loss {
    /// By this failure. `own`: the address of this host in the flow.
    pub(crate) fn of(failure: &v1::Failure, own: Option<&str>) -> Self {
        Self { reason: crate::print::path::failure_text(failure), pace: Pace::after(failure, own) }
    }

    /// By the failure of a passage that stood.
    pub(crate) fn of_standing(failure: &v1::Failure, own: Option<&str>) -> Self {
        Self { pace: Pace::after_standing(failure, own), ..Self::of(failure, own) }
    }

    /// The daemon ended the call, or this reason.
    pub(crate) fn because(reason: &str) -> Self {
        Self { reason: reason.to_owned(), pace: Pace::Soon }
    }

    /// By the error of an attempt; `None` for one that no further attempt mends.
    fn by(error: &anyhow::Error) -> Option<Self> {
        let mends = error.chain().any(|cause| {
            cause.is::<NoDaemon>()
                || cause.downcast_ref::<Refusal>().is_some_and(|refusal| {
                    let final_reasons = [
                        "taken_over",
                        "request_id_taken",
                        "client_too_slow",
                        "permission_denied",
                        "unimplemented",
                    ];
                    refusal.exit != Exit::Usage && !final_reasons.contains(&refusal.reason.as_str())
                })
        });
        mends.then(|| Self::because(&format!("{error:#}")))
    }
}

/// When a command asks again.
#[derive(Debug)]
pub(crate) struct Retry {
    /// It asks again at all.
    enabled: bool,
    /// Also for what was never granted.
    also_refused: bool,
    waits: Waits,
}

impl Retry {
    /// Nothing was granted yet.
    pub(crate) const fn new(enabled: bool) -> Self {
        Self { enabled, also_refused: false, waits: Waits::new() }
    }

    /// What is refused is asked for again, too: the command goes on without it.
    pub(crate) const fn also_refused(enabled: bool) -> Self {
        Self { enabled, also_refused: true, waits: Waits::new() }
    }

    /// It is granted. True: for the first time.
    pub(crate) const fn granted(&mut self) -> bool {
        let first = !self.waits.stood();
        self.waits.granted();
        first
    }

    /// The wait before the next attempt, as an event.
    fn next(&mut self, loss: Loss) -> v1::Retrying {
        let wait = self.waits.next(self.waits.pace(loss.pace));
        v1::Retrying { after_us: microseconds(wait), attempt: self.waits.attempts(), reason: loss.reason }
    }

    /// What follows an attempt that ended so: another one, or the end.
    ///
    /// # Errors
    /// Those of the attempt, if it is the last.
    pub(crate) fn follow(&mut self, end: Result<End>) -> Result<AfterAttempt> {
        let goes_on = self.enabled && (self.also_refused || self.waits.stood());
        let loss = match end {
            Ok(End::Over(exit)) => return Ok(AfterAttempt::Over(exit)),
            Ok(End::Lost(loss)) if goes_on && self.waits.pace(loss.pace) != Pace::Never => loss,
            Ok(End::Lost(_)) => return Ok(AfterAttempt::Over(Exit::No)),
            Err(error) => match Loss::by(&error).filter(|_| goes_on) {
                Some(loss) => loss,
                None => return Err(error),
            },
        };
        let retrying = self.next(loss);
        let wait = Duration::from_micros(retrying.after_us);
        Ok(AfterAttempt::Retry(retrying, spread(wait)))
    }

    /// Waits for the next attempt, after one that ended so. `Some`: the command is over. `say` prints that it asks again.
    ///
    /// # Errors
    /// Those of the attempt, if it is the last; those of `say`.
    pub(crate) async fn after(
        &mut self,
        end: Result<End>,
        termination: &mut Termination,
        say: impl FnOnce(v1::Retrying) -> Result<()>,
    ) -> Result<Option<Exit>> {
        let (retrying, wait) = match self.follow(end)? {
            AfterAttempt::Over(exit) => return Ok(Some(exit)),
            AfterAttempt::Retry(retrying, wait) => (retrying, wait),
        };
        say(retrying)?;
        tokio::select! {
            () = tokio::time::sleep(wait) => Ok(None),
            () = termination.wait() => Ok(Some(Exit::No)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(cause: v1::Cause, node: &str) -> v1::Failure {
        v1::Failure { cause: cause.into(), node: Some(node.into()), ..v1::Failure::default() }
    }

    /// O09: a link that returns, or a daemon, is found within 5 s; a path that refuses is not asked all the time.
    #[test]
    fn waits_grow_to_two_seconds_and_after_refusals_to_thirty() {
        let mut retry = Retry::new(true);
        let waits = |retry: &mut Retry, failure: &v1::Failure, count: u32| -> Vec<u64> {
            (0..count).map(|_| retry.next(Loss::of(failure, Some("10.0.0.1"))).after_us / 1000).collect()
        };
        let silent = refused(v1::Cause::NoAnswer, "10.0.0.9");
        assert_eq!(waits(&mut retry, &silent, 6), [250, 500, 1000, 2000, 2000, 2000]);
        retry.granted();
        let full = refused(v1::Cause::Admission, "10.0.0.9");
        let later = waits(&mut retry, &full, 32);
        assert_eq!((later[..6].to_vec(), later[31]), (vec![250, 500, 1000, 2000, 4000, 4000], 30_000));
        // This host itself refuses while its link is away.
        let by_this_host = refused(v1::Cause::Admission, "10.0.0.1");
        assert_eq!(waits(&mut retry, &by_this_host, 1), [2000]);
    }

    #[tokio::test]
    async fn only_what_stood_is_asked_for_again() {
        let mut termination = Termination::new(None).unwrap();
        let lost = || Ok(End::Lost(Loss::because("gone")));
        for (enabled, granted) in [(true, false), (false, true)] {
            let mut retry = Retry::new(enabled);
            if granted {
                retry.granted();
            }
            let exit = retry.after(lost(), &mut termination, |_| panic!("it asks again")).await.unwrap();
            assert_eq!(exit, Some(Exit::No));
        }
        // What a rule or an administrator ends stays ended.
        let mut retry = Retry::new(true);
        retry.granted();
        let ended = Ok(End::Lost(Loss::of(&refused(v1::Cause::Policy, "10.0.0.1"), None)));
        let exit = retry.after(ended, &mut termination, |_| panic!("it asks again")).await.unwrap();
        assert_eq!(exit, Some(Exit::No));
        let mut retry = Retry::new(true);
        assert!(retry.granted() && !retry.granted());
        let mut reported = None;
        let say = |retrying| {
            reported = Some(retrying);
            Ok(())
        };
        let exit = retry.after(lost(), &mut termination, say).await.unwrap();
        let reported = reported.unwrap();
        assert_eq!((exit, reported.attempt, reported.reason.as_str()), (None, 1, "gone"));
    }

    /// A firewall whose route is away for a moment refuses by another rule than the one by which it granted.
    #[test]
    fn what_a_rule_refuses_soon_after_a_loss_is_asked_for_again() {
        let denied = || Ok(End::Lost(Loss::of(&refused(v1::Cause::Policy, "10.0.0.9"), None)));
        let mut retry = Retry::new(true);
        retry.granted();
        assert!(
            matches!(retry.follow(denied()).unwrap(), AfterAttempt::Over(Exit::No)),
            "it ends what stood"
        );
        assert!(matches!(
            retry.follow(Ok(End::Lost(Loss::because("gone")))).unwrap(),
            AfterAttempt::Retry(_, _)
        ));
        let more = (0..100)
            .take_while(|_| matches!(retry.follow(denied()).unwrap(), AfterAttempt::Retry(_, _)))
            .count();
        assert_eq!(more, 6);
    }

    /// A wrong request, or a call that another one took over, is not repeated; a daemon that is away is waited for.
    #[tokio::test]
    async fn errors_that_no_attempt_mends_end_the_command() {
        let mut termination = Termination::new(None).unwrap();
        let refusal = |exit, reason: &str| Refusal { exit, reason: reason.into(), message: "no".into() };
        for (error, ends) in [
            (refusal(Exit::Usage, "invalid_argument").into(), true),
            (refusal(Exit::Environment, "taken_over").into(), true),
            (refusal(Exit::Environment, "unavailable").into(), false),
            (NoDaemon("away".into()).into(), false),
            (anyhow::anyhow!("standard output is closed"), true),
        ] {
            let mut retry = Retry::new(true);
            retry.granted();
            let after = retry.after(Err(error), &mut termination, |_| Ok(())).await;
            assert_eq!(after.is_err(), ends, "{after:?}");
        }
    }
}
