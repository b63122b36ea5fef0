//! Scripts read: lists, pipes, conditions, loops, functions.

use super::tokens::{Token, Tokens, is_name};
use super::{Command, Item, List, Script, Then, Word};

/// Commands nested deeper than this are not read.
const DEEPEST: usize = 40;

/// Reads a script; nothing if it cannot.
pub(in crate::plan) fn parse(script: &str) -> Option<Script> {
    let mut parser = Parser { tokens: Tokens::new(script), ahead: None, depth: 0, newlines: 0 };
    let list = parser.list(&[])?;
    (parser.next()? == Token::End).then_some(Script { list, newlines: parser.newlines })
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    ahead: Option<Token>,
    depth: usize,
    /// How many line ends were read since the last command.
    newlines: usize,
}

impl Parser<'_> {
    /// Commands up to one of these words (or operators), which is left to be read.
    fn list(&mut self, ends: &[&str]) -> Option<List> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut list = List::new();
        loop {
            while self.peek()? == Token::Op("\n") {
                self.next()?;
            }
            if self.is_at(ends)? || self.peek()? == Token::End {
                break;
            }
            let (mut negated, mut timed) = (false, false);
            while let Token::Word(word) = self.peek()?
                && (word.is("!") || word.is("time"))
            {
                if word.is("!") {
                    negated = !negated
                } else {
                    timed = true
                }
                self.next()?;
            }
            let pipeline = self.pipeline()?;
            self.newlines = 0;
            let then = match self.peek()? {
                Token::Op(";") => Then::Next,
                Token::Op("\n") => Then::Line,
                Token::Op("&&") => Then::And,
                Token::Op("||") => Then::Or,
                Token::Op("&") => Then::Background,
                Token::Op(_) | Token::Word(_) | Token::End => {
                    list.push(Item { pipeline, negated, timed, then: Then::Next, ends_line: false });
                    break;
                }
            };
            self.next()?;
            let ends = match then {
                Then::Line => true,
                Then::Next | Then::Background => self.peek()? == Token::Op("\n"),
                Then::And | Then::Or => false,
            };
            list.push(Item { pipeline, negated, timed, then, ends_line: ends });
        }
        self.depth -= 1;
        Some(list)
    }

    fn pipeline(&mut self) -> Option<Vec<Command>> {
        let mut commands = vec![self.command()?];
        while self.peek()? == Token::Op("|") {
            self.next()?;
            while self.peek()? == Token::Op("\n") {
                self.next()?;
            }
            commands.push(self.command()?);
        }
        Some(commands)
    }

    fn command(&mut self) -> Option<Command> {
        let command = match self.peek()? {
            Token::Op("(") => {
                self.next()?;
                // `((…))` is arithmetic.
                if self.peek()? == Token::Op("(") {
                    return None;
                }
                let list = self.list(&[")"])?;
                self.expect_op(")")?;
                Command::Subshell(list)
            }
            Token::Word(word) if word.plain => match word.raw.as_str() {
                "{" => {
                    self.next()?;
                    let list = self.list(&["}"])?;
                    self.expect_word("}")?;
                    Command::Group(list)
                }
                "if" => self.choice()?,
                "while" | "until" => self.loops(word.raw == "until")?,
                "for" => self.turns()?,
                "case" => self.case()?,
                "function" => {
                    self.next()?;
                    let name = self.any_word()?.raw;
                    if self.peek()? == Token::Op("(") {
                        self.next()?;
                        self.expect_op(")")?;
                    }
                    self.function(name, true)?
                }
                "then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}" | "!" | "select" | "coproc" => {
                    return None;
                }
                _ => return self.simple(),
            },
            Token::Word(_) => return self.simple(),
            Token::Op(_) | Token::End => return None,
        };
        // Redirections of a whole compound say nothing about signals.
        while let Token::Op("<>") = self.peek()? {
            self.next()?;
        }
        Some(command)
    }

    fn choice(&mut self) -> Option<Command> {
        let mut parts = Vec::new();
        self.next()?;
        loop {
            let condition = self.list(&["then"])?;
            self.expect_word("then")?;
            parts.push((condition, self.list(&["elif", "else", "fi"])?));
            match self.any_word()?.raw.as_str() {
                "elif" => {}
                "else" => {
                    let otherwise = self.list(&["fi"])?;
                    self.expect_word("fi")?;
                    return Some(Command::If(parts, Some(otherwise)));
                }
                _ => return Some(Command::If(parts, None)),
            }
        }
    }

    fn loops(&mut self, until: bool) -> Option<Command> {
        self.next()?;
        let condition = self.list(&["do"])?;
        self.expect_word("do")?;
        let body = self.list(&["done"])?;
        self.expect_word("done")?;
        Some(Command::Loop { condition, until, body })
    }

    fn turns(&mut self) -> Option<Command> {
        self.next()?;
        let name = Some(self.any_word()?.raw).filter(|name| is_name(name))?;
        let mut words = Vec::new();
        if self.is_at(&["in"])? {
            self.next()?;
            while let Token::Word(word) = self.peek()? {
                self.next()?;
                words.push(word);
            }
        }
        while let Token::Op(";" | "\n") = self.peek()? {
            self.next()?;
        }
        self.expect_word("do")?;
        let body = self.list(&["done"])?;
        self.expect_word("done")?;
        Some(Command::For { name, words, body })
    }

    fn case(&mut self) -> Option<Command> {
        self.next()?;
        let subject = self.any_word()?;
        while self.peek()? == Token::Op("\n") {
            self.next()?;
        }
        self.expect_word("in")?;
        let mut parts = Vec::new();
        loop {
            while let Token::Op("\n" | ";;") = self.peek()? {
                self.next()?;
            }
            if self.is_at(&["esac"])? {
                self.next()?;
                return Some(Command::Case(subject, parts));
            }
            if self.peek()? == Token::Op("(") {
                self.next()?;
            }
            let mut patterns = vec![self.any_word()?];
            while self.peek()? == Token::Op("|") {
                self.next()?;
                patterns.push(self.any_word()?);
            }
            self.expect_op(")")?;
            parts.push((patterns, self.list(&[";;", "esac"])?));
        }
    }

    fn function(&mut self, name: String, keyword: bool) -> Option<Command> {
        self.depth += 1;
        while self.peek()? == Token::Op("\n") {
            self.next()?;
        }
        let body = if self.depth > DEEPEST { return None } else { self.command()? };
        self.depth -= 1;
        Some(Command::Function { name, body: Box::new(body), keyword })
    }

    fn simple(&mut self) -> Option<Command> {
        let (mut assigns, mut words, mut redirected) = (Vec::new(), Vec::<Word>::new(), false);
        loop {
            match self.peek()? {
                Token::Word(word) => {
                    self.next()?;
                    match word.assignment().filter(|_| words.is_empty()) {
                        Some(assign) => assigns.push(assign),
                        None => words.push(word),
                    }
                }
                Token::Op("<>") => {
                    self.next()?;
                    redirected = true;
                }
                Token::Op("(") => {
                    let [name] = words.as_slice() else { return None };
                    let name = name.raw.clone();
                    self.next()?;
                    self.expect_op(")")?;
                    return self.function(name, false);
                }
                Token::Op(_) | Token::End => return Some(Command::Simple { assigns, words, redirected }),
            }
        }
    }

    fn is_at(&mut self, ends: &[&str]) -> Option<bool> {
        Some(match self.peek()? {
            Token::Word(word) => word.plain && ends.contains(&word.raw.as_str()),
            Token::Op(op) => ends.contains(&op),
            Token::End => false,
        })
    }

    fn expect_word(&mut self, keyword: &str) -> Option<()> {
        self.any_word().filter(|word| word.is(keyword)).map(drop)
    }

    fn expect_op(&mut self, op: &'static str) -> Option<()> {
        (self.next()? == Token::Op(op)).then_some(())
    }

    fn any_word(&mut self) -> Option<Word> {
        match self.next()? {
            Token::Word(word) => Some(word),
            Token::Op(_) | Token::End => None,
        }
    }

    fn peek(&mut self) -> Option<Token> {
        if self.ahead.is_none() {
            self.ahead = Some(self.tokens.token()?);
        }
        self.ahead.clone()
    }

    fn next(&mut self) -> Option<Token> {
        let token = match self.ahead.take() {
            Some(token) => token,
            None => self.tokens.token()?,
        };
        self.newlines += usize::from(token == Token::Op("\n"));
        Some(token)
    }
}
