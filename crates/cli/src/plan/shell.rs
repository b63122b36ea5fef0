//! Shell scripts as manifests hold them, read far enough to know which command runs where: quotes, comments, lists,
//! pipes, loops, functions. It reads, it runs nothing; whatever it cannot read it says so by answering nothing.

use std::iter::Peekable;
use std::str::Chars;

/// Commands nested deeper than this are not read.
const DEEPEST: usize = 40;

/// Commands in a row.
pub(super) type List = Vec<Item>;

/// One pipeline of a list and how it is joined to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// More than one if they are joined by pipes.
    pub(super) pipeline: Vec<Command>,
    /// What follows it.
    pub(super) then: Then,
}

/// How a command is joined to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// `;`, a new line, or the end.
    Next,
    /// `&&`.
    And,
    /// `||`.
    Or,
    /// `&`.
    Background,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A program, a builtin or a function, with its arguments; nothing but assignments leaves no words.
    Simple { assigns: Vec<String>, words: Vec<String>, redirected: bool },
    /// `( … )`.
    Subshell(List),
    /// `{ … }`.
    Group(List),
    /// `if` or `case`: whichever parts are run.
    Choice(Vec<List>),
    /// `while` or `until`.
    Loop { condition: List, until: bool, body: List },
    /// `for`, with the number of its turns if that shows.
    For { turns: Option<u32>, body: List },
    /// `name() …`.
    Function { name: String, body: Box<Command> },
}

impl Command {
    /// The words of a simple command.
    pub(super) fn words(&self) -> Option<&[String]> {
        let Self::Simple { words, .. } = self else { return None };
        Some(words)
    }
}

/// Reads a script; nothing if it cannot.
pub(super) fn parse(script: &str) -> Option<List> {
    let mut parser = Parser { chars: script.chars().peekable(), ahead: None, heredocs: Vec::new(), depth: 0 };
    let list = parser.list(&[])?;
    (parser.next()? == Token::End).then_some(list)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word { text: String, plain: bool },
    Op(&'static str),
    End,
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    ahead: Option<Token>,
    /// Delimiters of the documents that begin on the next line.
    heredocs: Vec<String>,
    depth: usize,
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
            let pipeline = self.pipeline()?;
            let then = match self.peek()? {
                Token::Op(";" | "\n") => Then::Next,
                Token::Op("&&") => Then::And,
                Token::Op("||") => Then::Or,
                Token::Op("&") => Then::Background,
                Token::Op(_) | Token::Word { .. } | Token::End => {
                    list.push(Item { pipeline, then: Then::Next });
                    break;
                }
            };
            self.next()?;
            list.push(Item { pipeline, then });
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
                let list = self.list(&[")"])?;
                self.expect_op(")")?;
                Command::Subshell(list)
            }
            Token::Word { text, plain: true } => match text.as_str() {
                "!" => {
                    self.next()?;
                    return self.command();
                }
                "{" => {
                    self.next()?;
                    let list = self.list(&["}"])?;
                    self.expect_word("}")?;
                    Command::Group(list)
                }
                "if" => self.choice()?,
                "while" | "until" => self.loops(text == "until")?,
                "for" => self.turns()?,
                "case" => self.case()?,
                "function" => {
                    self.next()?;
                    let name = self.any_word()?;
                    if self.peek()? == Token::Op("(") {
                        self.next()?;
                        self.expect_op(")")?;
                    }
                    self.function(name)?
                }
                "then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}" => return None,
                _ => return self.simple(),
            },
            Token::Word { .. } => return self.simple(),
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
            parts.push(self.list(&["then"])?);
            self.expect_word("then")?;
            parts.push(self.list(&["elif", "else", "fi"])?);
            match self.any_word()?.as_str() {
                "elif" => {}
                "else" => {
                    parts.push(self.list(&["fi"])?);
                    self.expect_word("fi")?;
                    return Some(Command::Choice(parts));
                }
                _ => return Some(Command::Choice(parts)),
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
        self.any_word()?;
        let mut turns = None;
        if self.is_at(&["in"])? {
            self.next()?;
            let mut count = Some(0_u32);
            while let Token::Word { text, .. } = self.peek()? {
                self.next()?;
                // How many words come of a pattern or a substitution does not show.
                let fixed = !text.contains(['$', '`', '*', '?', '{']);
                count = count.filter(|_| fixed).map(|count| count.saturating_add(1));
            }
            turns = count;
        }
        while let Token::Op(";" | "\n") = self.peek()? {
            self.next()?;
        }
        self.expect_word("do")?;
        let body = self.list(&["done"])?;
        self.expect_word("done")?;
        Some(Command::For { turns, body })
    }

    fn case(&mut self) -> Option<Command> {
        self.next()?;
        self.any_word()?;
        self.expect_word("in")?;
        let mut parts = Vec::new();
        loop {
            while let Token::Op("\n" | ";;") = self.peek()? {
                self.next()?;
            }
            if self.is_at(&["esac"])? {
                self.next()?;
                return Some(Command::Choice(parts));
            }
            if self.peek()? == Token::Op("(") {
                self.next()?;
            }
            self.any_word()?;
            while self.peek()? == Token::Op("|") {
                self.next()?;
                self.any_word()?;
            }
            self.expect_op(")")?;
            parts.push(self.list(&[";;", "esac"])?);
        }
    }

    fn function(&mut self, name: String) -> Option<Command> {
        self.depth += 1;
        while self.peek()? == Token::Op("\n") {
            self.next()?;
        }
        let body = if self.depth > DEEPEST { return None } else { self.command()? };
        self.depth -= 1;
        Some(Command::Function { name, body: Box::new(body) })
    }

    fn simple(&mut self) -> Option<Command> {
        let (mut assigns, mut words, mut redirected) = (Vec::new(), Vec::new(), false);
        loop {
            match self.peek()? {
                Token::Word { text, .. } => {
                    self.next()?;
                    if words.is_empty() && is_assignment(&text) { assigns.push(text) } else { words.push(text) }
                }
                Token::Op("<>") => {
                    self.next()?;
                    redirected = true;
                }
                Token::Op("(") => {
                    let [name] = words.as_slice() else { return None };
                    let name = name.clone();
                    self.next()?;
                    self.expect_op(")")?;
                    return self.function(name);
                }
                Token::Op(_) | Token::End => return Some(Command::Simple { assigns, words, redirected }),
            }
        }
    }

    fn is_at(&mut self, ends: &[&str]) -> Option<bool> {
        Some(match self.peek()? {
            Token::Word { text, plain: true } => ends.contains(&text.as_str()),
            Token::Op(op) => ends.contains(&op),
            Token::Word { .. } | Token::End => false,
        })
    }

    fn expect_word(&mut self, word: &str) -> Option<()> {
        (self.next()? == Token::Word { text: word.to_owned(), plain: true }).then_some(())
    }

    fn expect_op(&mut self, op: &'static str) -> Option<()> {
        (self.next()? == Token::Op(op)).then_some(())
    }

    fn any_word(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word { text, .. } => Some(text),
            Token::Op(_) | Token::End => None,
        }
    }

    fn peek(&mut self) -> Option<Token> {
        if self.ahead.is_none() {
            self.ahead = Some(self.token()?);
        }
        self.ahead.clone()
    }

    fn next(&mut self) -> Option<Token> {
        match self.ahead.take() {
            Some(token) => Some(token),
            None => self.token(),
        }
    }

    fn token(&mut self) -> Option<Token> {
        loop {
            match self.chars.peek().copied() {
                Some(' ' | '\t' | '\r') => drop(self.chars.next()),
                Some('#') => while self.chars.next_if(|c| *c != '\n').is_some() {},
                Some('\\') if self.second() == Some('\n') => drop((self.chars.next(), self.chars.next())),
                Some(_) | None => break,
            }
        }
        let Some(first) = self.chars.peek().copied() else { return Some(Token::End) };
        if !";&|()<>\n".contains(first) {
            return self.word();
        }
        self.chars.next();
        let mut follows = |c: char| self.chars.next_if_eq(&c).is_some();
        Some(Token::Op(match first {
            '\n' => {
                self.skip_heredocs()?;
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

    /// What follows `<` or `>`; where to is nobody's concern.
    fn redirect(&mut self, first: char) -> Option<Token> {
        let mut op = String::from(first);
        while let Some(c) = self.chars.next_if(|c| "<>&|-".contains(*c)) {
            op.push(c);
        }
        while self.chars.next_if(|c| " \t".contains(*c)).is_some() {}
        // `2>&-` has no target.
        let target = match self.chars.peek() {
            Some(c) if !";&|()<>\n".contains(*c) => match self.word()? {
                Token::Word { text, .. } => text,
                Token::Op(_) | Token::End => return None,
            },
            Some(_) | None => String::new(),
        };
        if op.starts_with("<<") && !op.starts_with("<<<") {
            self.heredocs.push(target);
        }
        Some(Token::Op("<>"))
    }

    fn skip_heredocs(&mut self) -> Option<()> {
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
        Some(())
    }

    fn word(&mut self) -> Option<Token> {
        let (mut text, mut plain) = (String::new(), true);
        while let Some(c) = self.chars.peek().copied() {
            match c {
                ' ' | '\t' | '\r' | ';' | '|' | '&' | '(' | ')' | '\n' => break,
                // `2>` redirects; the number is no word.
                '<' | '>' => {
                    if !text.is_empty() && plain && text.chars().all(|c| c.is_ascii_digit()) {
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
                    plain = false;
                    self.until('\'', &mut text, false)?;
                }
                '"' => {
                    plain = false;
                    self.until('"', &mut text, true)?;
                }
                '`' => {
                    text.push(c);
                    self.until('`', &mut text, true)?;
                    text.push(c);
                }
                '\\' => {
                    plain = false;
                    text.extend(self.chars.next().filter(|c| *c != '\n'));
                }
                '$' => self.substitution(&mut text)?,
                c => text.push(c),
            }
        }
        Some(Token::Word { text, plain })
    }

    /// Text up to the closing mark; with `escapes` it may hold substitutions and escaped marks.
    fn until(&mut self, mark: char, text: &mut String, escapes: bool) -> Option<()> {
        loop {
            match self.chars.next()? {
                c if c == mark => return Some(()),
                '\\' if escapes => text.extend(self.chars.next().filter(|c| *c != '\n')),
                '$' if escapes => self.substitution(text)?,
                c => text.push(c),
            }
        }
    }

    /// What follows a `$`, brackets and all.
    fn substitution(&mut self, text: &mut String) -> Option<()> {
        text.push('$');
        let (open, close) = match self.chars.peek() {
            Some('(') => ('(', ')'),
            Some('{') => ('{', '}'),
            Some(_) | None => return Some(()),
        };
        let mut deep = 0_u32;
        loop {
            let c = self.chars.next()?;
            text.push(c);
            match c {
                '\'' if open == '(' => {
                    self.until('\'', text, false)?;
                    text.push('\'');
                }
                '\\' => text.extend(self.chars.next()),
                c if c == open => deep += 1,
                c if c == close && deep == 1 => return Some(()),
                c if c == close => deep -= 1,
                _ => {}
            }
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of every simple command, pipes and lists flattened, with how each is followed.
    fn flat(script: &str) -> Vec<String> {
        fn of(list: &List, told: &mut Vec<String>) {
            for item in list {
                for command in &item.pipeline {
                    match command {
                        Command::Simple { words, .. } => told.push(words.join(" ")),
                        Command::Subshell(list) | Command::Group(list) => of(list, told),
                        Command::Choice(parts) => parts.iter().for_each(|part| of(part, told)),
                        Command::Loop { condition, body, .. } => {
                            of(condition, told);
                            of(body, told);
                        }
                        Command::For { body, .. } => of(body, told),
                        Command::Function { name, .. } => told.push(format!("{name}()")),
                    }
                }
            }
        }
        let mut told = Vec::new();
        of(&parse(script).expect(script), &mut told);
        told
    }

    #[test]
    fn quotes_and_comments_hide_what_they_should() {
        for (script, commands) in [
            ("server --say 'a; b' \"c && d\"", &["server --say a; b c && d"][..]),
            ("# first; second\nserver # exec no\n", &["server"]),
            ("echo a#b; c", &["echo a#b", "c"]),
            ("echo \"it's $(date; true) \\\" ok\" | tee", &["echo it's $(date; true) \" ok", "tee"]),
            ("a \\\n  --long; b", &["a --long", "b"]),
            ("server >log 2>&1 </dev/null", &["server"]),
            ("server &> log; b 2>&-", &["server", "b"]),
            ("cat <<EOF > f\nexec nothing; here\nEOF\nserver", &["cat", "server"]),
            ("X=1 Y='a b' server", &["server"]),
            ("for i in 1 2 3; do ping; done", &["ping"]),
            ("if [ -f x ]; then a; elif b; then c; else d; fi; e", &["[ -f x ]", "a", "b", "c", "d", "e"]),
            ("case $1 in a|b) x ;; *) y;; esac; z", &["x", "y", "z"]),
            ("stop() { kill $1; exit 0; }\nwait", &["stop()", "wait"]),
            ("while true; do\n  sleep 1\ndone", &["true", "sleep 1"]),
            ("{ a; b; } && (c)", &["a", "b", "c"]),
            ("! a || b", &["a", "b"]),
        ] {
            assert_eq!(flat(script), commands, "{script}");
        }
    }

    #[test]
    fn how_commands_are_joined_is_kept() {
        let joints =
            |script: &str| parse(script).expect("it is a script").iter().map(|item| item.then).collect::<Vec<_>>();
        assert_eq!(joints("a & b && c || d; e"), [Then::Background, Then::And, Then::Or, Then::Next, Then::Next]);
        assert_eq!(parse("a | b").expect("a pipe")[0].pipeline.len(), 2);
    }

    #[test]
    fn what_is_no_script_is_not_read() {
        let deep = "(".repeat(10_000);
        for script in ["'", "a (b", "if a; then", "done", "{ a", "case x in", ") a", "$(", "a | ", deep.as_str()] {
            assert_eq!(parse(script), None, "{}", &script[..script.len().min(20)]);
        }
        assert_eq!(parse(""), Some(Vec::new()));
    }
}
