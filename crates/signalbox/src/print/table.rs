//! Tables, and lists that come in pages.

use std::io::Write;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets;
use signalbox_api::{boomerang, casp, gist, mapping, qos, rsvp, v1};
use signalbox_json::Row;
use tonic::{Response, Status, Streaming};

use super::json_row;
use super::style::{Tone, paint};
use crate::arguments::OutputArgs;
use crate::client::{answer, refusal};
use crate::exit::Exit;

/// Rows of one table. A longer answer continues in a further table, so that memory stays bounded.
const ROWS: usize = 1000;

/// A response that has a part of the rows.
pub(crate) trait Page {
    type Row: Row;
    fn rows(self) -> Vec<Self::Row>;
}

macro_rules! pages {
    ($($page:ty: $row:ty, $field:ident;)*) => {
        $(impl Page for $page {
            type Row = $row;
            fn rows(self) -> Vec<$row> {
                self.$field
            }
        })*
    };
}

pages! {
    v1::ListInterfacesResponse: v1::Interface, interfaces;
    v1::ListMetricsResponse: v1::MetricFamily, families;
    v1::ListReservationsResponse: v1::Reservation, reservations;
    v1::ListPinholesResponse: v1::Pinhole, pinholes;
    v1::ListStandingRequestsResponse: v1::StandingRequest, requests;
    gist::v1::ListSessionsResponse: gist::v1::Session, sessions;
    gist::v1::ListPeersResponse: gist::v1::Peer, peers;
    gist::v1::ListAssociationsResponse: gist::v1::Association, associations;
    gist::v1::ListBindingsResponse: gist::v1::Binding, bindings;
    mapping::v1::ListMappingsResponse: mapping::v1::Mapping, mappings;
    qos::v1::ListSessionsResponse: qos::v1::Session, sessions;
    rsvp::v1::ListSessionsResponse: rsvp::v1::Session, sessions;
    rsvp::v1::ListNeighborsResponse: rsvp::v1::Neighbor, neighbors;
    rsvp::v1::ListInterfacesResponse: rsvp::v1::InterfaceState, interfaces;
    boomerang::v1::ListFlowsResponse: boomerang::v1::Flow, flows;
    boomerang::v1::ListGuessesResponse: boomerang::v1::Guesses, guesses;
    casp::v1::ListSessionsResponse: casp::v1::Session, sessions;
    casp::v1::ListPeersResponse: casp::v1::Peer, peers;
}

/// Prints rows as they arrive: as lines of JSON, or as a table, where `cells` makes any number of its rows of each.
pub(crate) async fn list<P: Page, const N: usize>(
    pages: Result<Response<Streaming<P>>, Status>,
    output: OutputArgs,
    columns: &[&str; N],
    cells: impl Fn(&P::Row) -> Vec<[String; N]>,
) -> Result<Exit> {
    let mut pages = answer(pages)?;
    let mut out = std::io::stdout().lock();
    let mut printer = Printer { table: new(columns), columns, empty: true };
    while let Some(page) = pages.message().await.map_err(refusal)? {
        printer.rows(&mut out, page.rows(), output, &cells)?;
    }
    printer.end(&mut out, output)
}

/// A table that grows row by row.
struct Printer<'a> {
    table: Table,
    columns: &'a [&'a str],
    empty: bool,
}

impl Printer<'_> {
    fn rows<R: Row, const N: usize>(
        &mut self,
        out: &mut impl Write,
        rows: Vec<R>,
        output: OutputArgs,
        cells: &impl Fn(&R) -> Vec<[String; N]>,
    ) -> Result<()> {
        for row in rows {
            if output.json {
                json_row(out, &row)?;
                continue;
            }
            self.empty = false;
            self.table.add_rows(cells(&row));
            if self.table.row_count() >= ROWS {
                print(out, &self.table)?;
                self.table = new(self.columns);
            }
        }
        Ok(())
    }

    fn end(self, out: &mut impl Write, output: OutputArgs) -> Result<Exit> {
        if self.table.row_count() > 0 {
            print(out, &self.table)?;
        } else if self.empty && !output.json {
            writeln!(out, "none")?;
        }
        out.flush()?;
        Ok(Exit::Yes)
    }
}

/// An empty table.
pub(crate) fn new(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|name| name.to_uppercase()));
    table
}

/// Prints a table.
pub(crate) fn print(out: &mut impl Write, table: &Table) -> Result<()> {
    let text = table.trim_fmt();
    let (header, rows) = text.split_once('\n').unwrap_or((&text, ""));
    writeln!(out, "{}", paint(Tone::Heading, header))?;
    if !rows.is_empty() {
        writeln!(out, "{rows}")?;
    }
    Ok(())
}
