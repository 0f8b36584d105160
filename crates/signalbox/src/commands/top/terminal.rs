//! The terminal: its screen, which comes back as it was at every end, and its keys.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, raise};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, read};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc;

use super::draw::draw;
use super::model::{Key, Model};
use crate::print::style;

/// Whether there is a terminal to draw on and to read keys from.
pub(super) fn is_there() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// A screen of its own on the terminal, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colors: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It is not a terminal, or is gone.
    pub(super) fn enter() -> Result<Self> {
        static HOOK: Once = Once::new();
        // A panic prints its message before anything is dropped: it would go to the screen that vanishes.
        HOOK.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                print(panic);
            }));
        });
        let terminal = take().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal, colors: style::is_on() }),
            Err(error) => {
                leave();
                Err(error).context("cannot use the terminal")
            }
        }
    }

    /// Draws the state.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, model: &mut Model) -> Result<()> {
        let colors = self.colors;
        self.terminal.draw(|frame| draw(model, frame.buffer_mut(), colors)).context("cannot draw")?;
        Ok(())
    }

    /// Gives the terminal back, stops the process, and takes it again when the process continues.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn suspend(&mut self) -> Result<()> {
        leave();
        raise(Signal::SIGSTOP)?;
        take().and_then(|()| self.terminal.clear()).context("cannot use the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Makes the terminal what it was. A terminal that is gone needs nothing.
fn leave() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// What comes from the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    /// It has another size.
    Resized,
}

/// Keys and changes of the size, from a thread that ends with the process: a read of the terminal cannot be interrupted.
pub(super) fn inputs() -> mpsc::Receiver<io::Result<Input>> {
    let (sender, receiver) = mpsc::channel(32);
    std::thread::spawn(move || {
        loop {
            let event = read();
            let failed = event.is_err();
            let inputs = event.map_or_else(|error| vec![Err(error)], |event| of_event(&event));
            if inputs.into_iter().any(|input| sender.blocking_send(input).is_err()) || failed {
                return;
            }
        }
    });
    receiver
}

/// What an event means. Esc and a letter that arrive together look like the letter with Alt, which means nothing here.
fn of_event(event: &Event) -> Vec<io::Result<Input>> {
    let inputs = match event {
        Event::Key(KeyEvent {
            code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, ..
        }) => {
            let escape = modifiers.contains(KeyModifiers::ALT).then_some(Key::Escape);
            [escape, key(*code, *modifiers)].map(|key| key.map(Input::Key))
        }
        Event::Resize(..) => [Some(Input::Resized), None],
        Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => {
            [None, None]
        }
    };
    inputs.into_iter().flatten().map(Ok).collect()
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    if modifiers.contains(KeyModifiers::CONTROL) {
        return match code {
            KeyCode::Char('c') => Some(Key::Interrupt),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    Some(match code {
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_with_control_or_alt_are_other_keys() {
        let inputs = |event: &Event| of_event(event).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let typed = |code, modifiers| inputs(&Event::Key(KeyEvent::new(code, modifiers)));
        let key = |key| Input::Key(key);
        assert_eq!(typed(KeyCode::Char('c'), KeyModifiers::NONE), [key(Key::Char('c'))]);
        assert_eq!(typed(KeyCode::Char('c'), KeyModifiers::CONTROL), [key(Key::Interrupt)]);
        assert_eq!(typed(KeyCode::Char('q'), KeyModifiers::CONTROL), []);
        assert_eq!(typed(KeyCode::Char('6'), KeyModifiers::ALT), [key(Key::Escape), key(Key::Char('6'))]);
        assert_eq!(inputs(&Event::Resize(80, 24)), [Input::Resized]);
    }
}
