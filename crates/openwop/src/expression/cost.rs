//! How long an expression may take, and how much it may make: told beforehand, from its text and
//! from the values it looks at.
//!
//! An expression always ends, but loops within loops over what a caller sent may take hours, a few
//! of them may make more than a machine can hold, and a step of a run is computed on a thread that
//! others need. So what an evaluation could come to at most is added up first, over the very
//! values. The bound depends on nothing else: the same expression is refused for the same values
//! on every machine.
//!
//! Invariant: no evaluation takes more steps, or makes more, than is told here. Where something is
//! not known it counts as all there could be.

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::Value;

/// The most steps of one evaluation.
const STEPS_MAX: u128 = 10_000_000;
/// The most that one evaluation makes on its way.
const SIZE_MAX: u128 = 4_000_000;
/// The deepest expression: whoever evaluates one goes as deep.
const DEPTH_MAX: u32 = 128;
/// So many bytes of text are one more value.
const TEXT_BYTES: usize = 8;
/// To read a pattern takes so many steps, and each of its values so many more.
const PATTERN_STEPS: u128 = 1_000;

/// What an expression may come to at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Most {
    /// How large its value is: values in values, and text by its length.
    size: u128,
    /// How large one item of it is, if it is a list or an object.
    item: u128,
    /// How many steps it takes, each about as long as it takes to copy a small value.
    steps: u128,
}

impl Most {
    /// A value of this size, at no cost.
    const fn of(size: u128) -> Self {
        Self { size, item: size, steps: 0 }
    }

    /// Both, one after the other; their values become one.
    fn and(self, other: Self) -> Self {
        Self {
            size: self.size.saturating_add(other.size),
            item: self.item.max(other.item),
            steps: self.steps.saturating_add(other.steps),
        }
    }

    const fn taking(self, steps: u128) -> Self {
        Self { steps: self.steps.saturating_add(steps), ..self }
    }

    const fn sized(self, size: u128) -> Self {
        Self { size, item: size, ..self }
    }
}

/// Whether an expression is deeper than one may be.
pub(super) fn is_too_deep(expression: &IdedExpr) -> bool {
    depth(expression) > DEPTH_MAX
}

fn depth(expression: &IdedExpr) -> u32 {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or(0)
}

/// Whether to evaluate `expression` over `known` might take too long, or make too much.
pub(super) fn is_too_costly(expression: &IdedExpr, known: &[(&str, &Value)]) -> bool {
    let mut reckoning = Reckoning { known, local: Vec::new(), largest: 0 };
    let most = reckoning.of(expression);
    most.steps > STEPS_MAX || reckoning.largest > SIZE_MAX
}

/// What is reckoned with on the way through an expression.
struct Reckoning<'a> {
    known: &'a [(&'a str, &'a Value)],
    /// The variables of the loops around, and how large each is at most.
    local: Vec<(&'a str, Most)>,
    /// The largest value on the way.
    largest: u128,
}

impl<'a> Reckoning<'a> {
    fn of(&mut self, expression: &'a IdedExpr) -> Most {
        let most = self.inside(expression);
        self.largest = self.largest.max(most.size);
        most.taking(1)
    }

    fn inside(&mut self, expression: &'a IdedExpr) -> Most {
        // What is there is as large as it is.
        if let Some(value) = self.there(&expression.expr) {
            return Most { item: item_size(value), ..Most::of(size(value)) };
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name).unwrap_or_default(),
            Expr::Literal(literal) => Most::of(literal_size(literal)),
            Expr::Unspecified => Most::default(),
            Expr::Select(select) if select.test => self.of(&select.operand).sized(1),
            // A part is no larger than the whole.
            Expr::Select(select) => self.of(&select.operand),
            Expr::Call(call) => {
                let mut each = Vec::with_capacity(call.args.len() + 1);
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    each.push(self.of(part));
                }
                called(&call.func_name, &each)
            }
            Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => {
                let each: Vec<_> =
                    parts(expression).into_iter().map(|part| self.of(part)).collect();
                let item = each.iter().map(|part| part.size).max().unwrap_or(0);
                let all = each.into_iter().fold(Most::of(1), Most::and);
                Most { item, ..all.taking(all.size) }
            }
            Expr::Comprehension(each) => self.each(each),
        }
    }

    /// A loop. What it gathers grows with every round by what one round adds.
    fn each(&mut self, each: &'a ComprehensionExpr) -> Most {
        let range = self.of(&each.iter_range);
        let rounds = match self.there(&each.iter_range.expr) {
            Some(Value::Array(items)) => items.len() as u128,
            Some(Value::Object(members)) => members.len() as u128,
            Some(_) | None => range.size,
        };
        let (start, item) = (self.of(&each.accu_init), Most::of(range.item));
        let before = self.local.len();
        self.local.push((&each.iter_var, item));
        self.local.extend(each.iter_var2.as_deref().map(|name| (name, item)));
        self.local.push((&each.accu_var, Most::default()));
        let (goes_on, round) = (self.of(&each.loop_cond), self.of(&each.loop_step));
        let size = start.size.saturating_add(rounds.saturating_mul(round.size));
        let gathered = Most { item: start.item.max(round.item), ..Most::of(size) };
        if let Some((_, found)) = self.local.last_mut() {
            *found = gathered;
        }
        let result = self.of(&each.result);
        self.local.truncate(before);
        // What a round makes is copied once more when it is gathered.
        let steps = goes_on.steps.saturating_add(round.steps).saturating_add(round.size);
        let all = range.and(start).and(result).taking(rounds.saturating_mul(steps));
        self.largest = self.largest.max(size);
        Most { size: result.size, item: result.item, steps: all.steps }
    }

    fn local(&self, name: &str) -> Option<Most> {
        self.local.iter().rev().find(|(local, _)| *local == name).map(|(_, most)| *most)
    }

    /// The value that an expression names, if it is one of those known.
    fn there(&self, expression: &Expr) -> Option<&'a Value> {
        match expression {
            Expr::Ident(name) if self.local(name).is_none() => {
                self.known.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
            }
            Expr::Select(select) if !select.test => {
                self.there(&select.operand.expr)?.get(select.field.as_str())
            }
            Expr::Ident(_)
            | Expr::Select(_)
            | Expr::Call(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Struct(_)
            | Expr::Unspecified => None,
        }
    }
}

/// What a call makes of what its parts came to.
fn called(name: &str, parts: &[Most]) -> Most {
    let all = parts.iter().fold(Most::default(), |all, part| all.and(*part));
    let largest = parts.iter().map(|part| part.size).max().unwrap_or(0);
    match name {
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::NOT_STRICTLY_FALSE
        | operators::NEGATE
        | operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO => all.sized(1),
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::IN
        | "size" => all.taking(all.size).sized(1),
        operators::CONDITIONAL => Most { size: largest, ..all },
        operators::INDEX | operators::OPT_INDEX => all.sized(largest),
        operators::ADD => all.taking(all.size),
        "matches" => {
            let pattern = PATTERN_STEPS.saturating_mul(1 + parts.last().map_or(0, |it| it.size));
            all.taking(all.size.saturating_add(pattern)).sized(1)
        }
        // Whatever it makes is as large as all that it is given.
        _ => all.taking(all.size).sized(all.size.saturating_add(1)),
    }
}

/// What an expression is made of.
fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect(),
        Expr::Struct(one) => one.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn of_entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// How large a value is.
fn size(value: &Value) -> u128 {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| text_size(name) + size(value)).sum()
        }
        Value::String(text) => text_size(text) - 1,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// How large the largest item of a value is.
fn item_size(value: &Value) -> u128 {
    let sizes: Option<u128> = match value {
        Value::Array(items) => items.iter().map(size).max(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| text_size(name).max(size(value))).max()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(size(value)),
    };
    sizes.unwrap_or(0)
}

fn literal_size(literal: &LiteralValue) -> u128 {
    match literal {
        LiteralValue::String(text) => text_size(text.inner()),
        LiteralValue::Bytes(bytes) => 1 + (bytes.inner().len() / TEXT_BYTES) as u128,
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => 1,
    }
}

const fn text_size(text: &str) -> u128 {
    1 + (text.len() / TEXT_BYTES) as u128
}

#[cfg(test)]
mod tests {
    use cel::Program;
    use serde_json::json;

    use super::*;

    fn is_refused(source: &str, known: &Value) -> bool {
        let program = Program::compile(source).unwrap();
        is_too_costly(program.expression(), &[("variables", known)])
    }

    #[test]
    fn what_takes_long_or_makes_much_is_this_table() {
        let known = json!({
            "few": [1, 2, 3], "many": (0..50_000).collect::<Vec<_>>(), "text": "x".repeat(50_000),
            "empty": vec![json!([]); 50_000], "pattern": "(a|b)*c",
            "orders": (0..20_000).map(|n| json!({"total": n, "of": "somebody", "is": "open"}))
                .collect::<Vec<_>>(),
        });
        let table = [
            ("variables.many.map(x, x + 1)", false),
            ("variables.many.filter(x, x > 1).exists(x, x == 9)", false),
            ("variables.orders.filter(o, o.total > 10 && o.is == 'open')", false),
            ("variables.few.exists(f, f in variables.many)", false),
            ("variables.many.exists(x, x in variables.few)", false),
            ("variables.text.matches(variables.pattern)", false),
            ("variables.few.map(x, variables.text + variables.text)", false),
            ("variables.many.map(x, variables.few.exists(y, x == y))", false),
            // Loops within loops, seen and unseen.
            ("variables.many.all(x, variables.many.all(y, x != -y))", true),
            ("variables.many.all(x, x in variables.many)", true),
            ("variables.few.all(x, variables.many.all(y, y in variables.many))", true),
            ("variables.many.all(x, variables.empty == variables.empty)", true),
            ("variables.many.all(x, size(variables.many + variables.many) > 0)", true),
            ("variables.many.all(x, 'y'.matches(variables.pattern))", true),
            // What is made grows.
            ("variables.many.map(x, variables.many)", true),
            ("variables.many.map(x, {'i': x, 'all': variables})", true),
            ("variables.many.map(x, [variables.text])", true),
        ];
        for (source, refused) in table {
            assert_eq!(is_refused(source, &known), refused, "{source}");
        }
        let twice = |each: &str| format!("['xxxxxxxx']{}", each.repeat(40));
        assert!(is_refused(&twice(".map(s, s + s)"), &known));
        assert!(is_refused(&twice(".map(s, [s, s])"), &known));
    }

    #[test]
    fn depth_is_told() {
        let deep = |times: usize| format!("{}true", "!(".repeat(times)) + &")".repeat(times);
        let is_deep = |source: &str| is_too_deep(Program::compile(source).unwrap().expression());
        assert!(!is_deep("variables.a.b.c.map(x, x.d == [1, {'e': 2}])"));
        assert!(!is_deep(&deep(40)));
        assert!(is_deep(&format!("1{}", " + 1".repeat(500))));
    }
}
