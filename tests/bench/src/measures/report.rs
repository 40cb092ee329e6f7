//! Tables: aligned text for a terminal, markdown for docs/benchmarks.md.

use std::fmt::Write;

const HEAD: [&str; 5] = ["what", "measured", "peer, ratio", "budget", "within?"];

pub struct Table {
    title: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

pub struct Row {
    cells: [String; 5],
}

impl Row {
    /// What it is compared with in the same run.
    pub fn peer(&mut self, text: impl Into<String>) -> &mut Self {
        self.cells[2] = text.into();
        self
    }

    /// What the design allows, and whether the number keeps to it.
    pub fn budget(&mut self, text: &str, is_within: bool) -> &mut Self {
        self.cells[3] = text.into();
        self.cells[4] = if is_within { "yes" } else { "NO" }.into();
        self
    }
}

impl Table {
    pub fn new(title: &str) -> Self {
        Table { title: title.into(), rows: Vec::new(), notes: Vec::new() }
    }

    pub fn row(&mut self, what: &str, measured: impl Into<String>) -> &mut Row {
        let cells = [what.into(), measured.into(), String::new(), String::new(), String::new()];
        let place = self.rows.len();
        self.rows.push(Row { cells });
        &mut self.rows[place]
    }

    /// Adds a line below the table.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn lines(&self) -> Vec<[&str; 5]> {
        let mut lines = vec![HEAD];
        lines.extend(self.rows.iter().map(|row| row.cells.each_ref().map(String::as_str)));
        lines
    }

    pub fn text(&self) -> String {
        let lines = self.lines();
        let width =
            |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        let mut text = format!("\n{}\n", self.title);
        for (place, line) in lines.iter().enumerate() {
            let mut out = String::new();
            for (cell, width) in line.iter().zip(widths) {
                let _ = write!(out, "  {cell:width$}");
            }
            let _ = writeln!(text, "{}", out.trim_end());
            if place == 0 {
                let _ = writeln!(text, "  {}", "-".repeat(widths.iter().sum::<usize>() + 8));
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        text
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("\n## {}\n\n", self.title);
        for (place, line) in self.lines().iter().enumerate() {
            let _ = writeln!(text, "| {} |", line.map(|cell| cell.replace('|', "\\|")).join(" | "));
            if place == 0 {
                text += "|---|---|---|---|---|\n";
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }
}

/// Writes `18532.4` as `18,532`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

/// Writes a ratio such as `0.025` as `+2.5 %`.
pub fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("t");
        table.row("a long name", "1").budget("≤ 2", true);
        let text = table.text();
        let line = text.lines().find(|line| line.contains("a long name")).unwrap();
        let head = text.lines().find(|line| line.contains("budget")).unwrap();
        let column = |line: &str, cell: &str| line.split(cell).next().unwrap().chars().count();
        assert_eq!(column(line, "≤ 2"), column(head, "budget"));
        assert!(table.markdown().contains("| a long name | 1 |  | ≤ 2 | yes |"));
    }

    #[test]
    fn digits_come_in_groups_of_three() {
        assert_eq!(thousands(18_532.4), "18,532");
        assert_eq!(thousands(532.0), "532");
        assert_eq!(percent(1.025), "+2.5 %");
    }
}
