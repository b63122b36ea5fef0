//! Scripts cut into words and operators: quotes, comments, substitutions, documents that stand in the text.

use std::iter::Peekable;
use std::str::Chars;

use super::{Piece, Word};

/// A word or an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// All redirections are `<>`: where to is nobody's concern.
    Op(&'static str),
    End,
}

/// What is left of a text.
pub(super) struct Tokens<'a> {
    chars: Peekable<Chars<'a>>,
    /// Delimiters of the documents that begin on the next line.
    heredocs: Vec<String>,
}

const OPERATORS: &str = ";&|()<>\n";

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { chars: text.chars().peekable(), heredocs: Vec::new() }
    }

    /// The next one; nothing if it is not understood.
    pub(super) fn token(&mut self) -> Option<Token> {
        loop {
            match self.chars.peek().copied() {
                Some(' ' | '\t' | '\r') => drop(self.chars.next()),
                Some('#') => while self.chars.next_if(|c| *c != '\n').is_some() {},
                Some('\\') if self.second() == Some('\n') => drop((self.chars.next(), self.chars.next())),
                Some(_) | None => break,
            }
        }
        let Some(first) = self.chars.peek().copied() else { return Some(Token::End) };
        if !OPERATORS.contains(first) {
            return self.word();
        }
        self.chars.next();
        let mut follows = |c: char| self.chars.next_if_eq(&c).is_some();
        Some(Token::Op(match first {
            '\n' => {
                self.skip_heredocs();
                "\n"
            }
            ';' if follows(';') => ";;",
            ';' => ";",
            '&' if follows('&') => "&&",
            '&' if follows('>') => return self.redirect('>'),
            '&' => "&",
            '|' if follows('|') => "||",
            // `|&` is a pipe too.
            '|' => {
                follows('&');
                "|"
            }
            '(' => "(",
            ')' => ")",
            other => return self.redirect(other),
        }))
    }

    fn second(&self) -> Option<char> {
        let mut further = self.chars.clone();
        further.next();
        further.next()
    }

    /// What follows `<` or `>`.
    fn redirect(&mut self, first: char) -> Option<Token> {
        let mut op = String::from(first);
        while let Some(c) = self.chars.next_if(|c| "<>&|-".contains(*c)) {
            op.push(c);
        }
        while self.chars.next_if(|c| " \t".contains(*c)).is_some() {}
        // `2>&-` has no target.
        let target = match self.chars.peek() {
            Some(c) if !OPERATORS.contains(*c) => match self.word()? {
                Token::Word(word) => word.raw,
                Token::Op(_) | Token::End => return None,
            },
            // `<(…)` is a process beside this one.
            Some('(') => return None,
            Some(_) | None => String::new(),
        };
        if op.starts_with("<<") && !op.starts_with("<<<") {
            self.heredocs.push(target);
        }
        Some(Token::Op("<>"))
    }

    fn skip_heredocs(&mut self) {
        for end in std::mem::take(&mut self.heredocs) {
            loop {
                let mut line = String::new();
                while let Some(c) = self.chars.next_if(|c| *c != '\n') {
                    line.push(c);
                }
                let last = self.chars.next().is_none();
                if line.trim_start_matches('\t') == end || last {
                    break;
                }
            }
        }
    }

    fn word(&mut self) -> Option<Token> {
        let mut word = Word { pieces: Vec::new(), raw: String::new(), plain: true };
        while let Some(c) = self.chars.peek().copied() {
            match c {
                ' ' | '\t' | '\r' | ';' | '|' | '&' | '(' | ')' | '\n' => break,
                // `2>` redirects; the number is no word.
                '<' | '>' => {
                    if !word.raw.is_empty() && word.plain && word.raw.chars().all(|c| c.is_ascii_digit()) {
                        self.chars.next();
                        return self.redirect(c);
                    }
                    break;
                }
                _ => {}
            }
            self.chars.next();
            match c {
                '\'' => {
                    word.plain = false;
                    let mut text = String::new();
                    self.until('\'', &mut text)?;
                    word.text(&text);
                }
                '"' => {
                    word.plain = false;
                    self.quoted(&mut word)?;
                }
                '`' => self.backquoted(&mut word, true)?,
                '\\' => {
                    word.plain = false;
                    word.text(self.chars.next().filter(|c| *c != '\n').map(String::from).unwrap_or_default().as_str());
                }
                '$' => self.substitution(&mut word, true)?,
                '*' | '?' => {
                    word.raw.push(c);
                    word.pieces.push(Piece::Unclear);
                }
                c => word.text(c.encode_utf8(&mut [0; 4])),
            }
        }
        Some(Token::Word(word))
    }

    /// Text up to the closing mark, taken as it is.
    fn until(&mut self, mark: char, text: &mut String) -> Option<()> {
        loop {
            match self.chars.next()? {
                c if c == mark => return Some(()),
                c => text.push(c),
            }
        }
    }

    fn quoted(&mut self, word: &mut Word) -> Option<()> {
        word.text("");
        loop {
            match self.chars.next()? {
                '"' => return Some(()),
                '\\' => match self.chars.next()? {
                    '\n' => {}
                    c @ ('"' | '\\' | '$' | '`') => word.text(c.encode_utf8(&mut [0; 4])),
                    c => word.text(&format!("\\{c}")),
                },
                '$' => self.substitution(word, false)?,
                '`' => self.backquoted(word, false)?,
                c => word.text(c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    fn backquoted(&mut self, word: &mut Word, split: bool) -> Option<()> {
        let mut script = String::new();
        loop {
            match self.chars.next()? {
                '`' => break,
                '\\' => script.extend(self.chars.next()),
                c => script.push(c),
            }
        }
        word.raw.push_str(&format!("`{script}`"));
        word.pieces.push(Piece::Output { script, split });
        Some(())
    }

    /// What follows a `$`.
    fn substitution(&mut self, word: &mut Word, split: bool) -> Option<()> {
        let (piece, raw) = match self.chars.peek().copied() {
            Some('(') => {
                let inside = self.bracketed('(', ')')?;
                let raw = format!("$({inside})");
                let arithmetic = inside.strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
                match arithmetic {
                    Some(sum) => (Piece::Arithmetic(sum.to_owned()), raw),
                    None => (Piece::Output { script: inside, split }, raw),
                }
            }
            Some('{') => {
                let inside = self.bracketed('{', '}')?;
                let raw = format!("${{{inside}}}");
                // `${name:-…}` and the like are understood where they change nothing.
                let known = is_name(&inside) || matches!(inside.as_str(), "!" | "?" | "$" | "@" | "*" | "#");
                if known { (Piece::Variable { name: inside, split }, raw) } else { (Piece::Unclear, raw) }
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                let raw = format!("${name}");
                (Piece::Variable { name, split }, raw)
            }
            Some(c) if c.is_ascii_digit() || "!?$@*#-".contains(c) => {
                self.chars.next();
                (Piece::Variable { name: c.to_string(), split }, format!("${c}"))
            }
            Some('\'') if split => return None,
            Some(_) | None => (Piece::Text("$".to_owned()), "$".to_owned()),
        };
        word.raw.push_str(&raw);
        word.pieces.push(piece);
        Some(())
    }

    /// What stands between two brackets, which may hold others.
    fn bracketed(&mut self, open: char, close: char) -> Option<String> {
        let (mut text, mut deep) = (String::new(), 0_u32);
        loop {
            let c = self.chars.next()?;
            text.push(c);
            match c {
                '\'' if open == '(' => {
                    self.until('\'', &mut text)?;
                    text.push('\'');
                }
                '\\' => text.extend(self.chars.next()),
                c if c == open => deep += 1,
                c if c == close && deep == 1 => break,
                c if c == close => deep -= 1,
                _ => {}
            }
        }
        Some(text[open.len_utf8()..text.len() - close.len_utf8()].to_owned())
    }
}

impl Word {
    fn text(&mut self, text: &str) {
        self.raw.push_str(text);
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            Some(_) | None => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    /// Whether it is that keyword or operator word.
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.plain && self.raw == keyword
    }

    /// `NAME=VALUE`, cut in two.
    pub(super) fn assignment(&self) -> Option<(String, Word)> {
        let [Piece::Text(first), rest @ ..] = self.pieces.as_slice() else { return None };
        let (name, begin) = first.split_once('=')?;
        // What is added to stays unknown.
        let (name, adds) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        if !is_name(name) {
            return None;
        }
        let begin = if adds { Piece::Unclear } else { Piece::Text(begin.to_owned()) };
        let pieces = std::iter::once(begin).chain(rest.iter().map(Piece::whole)).collect();
        Some((name.to_owned(), Word { pieces, raw: self.raw.clone(), plain: false }))
    }
}

impl Piece {
    /// In an assignment nothing falls apart.
    fn whole(&self) -> Self {
        match self.clone() {
            Self::Variable { name, .. } => Self::Variable { name, split: false },
            Self::Output { script, .. } => Self::Output { script, split: false },
            piece @ (Self::Text(_) | Self::Arithmetic(_) | Self::Unclear) => piece,
        }
    }
}

/// Whether a variable or a function may be called that.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
