//! One IntServ message of a QOSFMT_INTSERV specification: the parameters of RFC 2210 §3.2.

use signalbox_wire::{Reader, Short, Writer};

/// Offset of the token rate in an IntServ message.
pub(super) const TOKEN_RATE: usize = 12;
/// Offset of the peak rate in an IntServ message.
pub(super) const PEAK_RATE: usize = 20;

/// Service numbers (RFC 2215 §1.3) and parameter numbers.
const GUARANTEED: u8 = 2;
const CONTROLLED_LOAD: u8 = 5;
const TOKEN_BUCKET: u8 = 127;
const RSPEC: u8 = 130;

/// What an IntServ message asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Token rate *r*, octets a second.
    pub rate: f32,
    /// Bucket depth *b*, octets.
    pub bucket: f32,
    /// Peak rate *p*, octets a second.
    pub peak: f32,
    /// Minimum policed unit *m*, octets.
    pub min_policed: u32,
    /// Maximum packet size *M*, octets.
    pub max_packet: u32,
    /// Rate *R* and slack *S* of guaranteed service; `None`: controlled load.
    pub guaranteed: Option<(f32, u32)>,
}

impl Parameters {
    /// Parses an IntServ message with its header; `None`: it is neither controlled load nor guaranteed service.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        Self::read(&mut Reader::new(message)).ok().flatten()
    }

    /// Appends the IntServ message of these parameters.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (service, words) = if self.guaranteed.is_some() { (GUARANTEED, 9) } else { (CONTROLLED_LOAD, 6) };
        let mut w = Writer::new(to);
        w.bytes(&[0, 0, 0, words + 1, service, 0, 0, words, TOKEN_BUCKET, 0, 0, 5]);
        [self.rate, self.bucket, self.peak].iter().for_each(|value| w.u32(value.to_bits()));
        w.u32(self.min_policed);
        w.u32(self.max_packet);
        if let Some((rate, slack)) = self.guaranteed {
            w.bytes(&[RSPEC, 0, 0, 2]);
            w.u32(rate.to_bits());
            w.u32(slack);
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        r.u32()?;
        let [service, _, _, words] = r.array()?;
        let [bucket, _, _, five] = r.array()?;
        let float = |r: &mut Reader<'_>| Ok(f32::from_bits(r.u32()?));
        let (rate, depth, peak) = (float(r)?, float(r)?, float(r)?);
        let (min_policed, max_packet) = (r.u32()?, r.u32()?);
        let guaranteed = match (service, words) {
            (CONTROLLED_LOAD, 6) => None,
            (GUARANTEED, 9) => {
                let [rspec, _, _, two] = r.array()?;
                if (rspec, two) != (RSPEC, 2) {
                    return Ok(None);
                }
                Some((float(r)?, r.u32()?))
            }
            _ => return Ok(None),
        };
        let whole = (bucket, five) == (TOKEN_BUCKET, 5) && r.is_empty();
        Ok(whole.then_some(Self { rate, bucket: depth, peak, min_policed, max_packet, guaranteed }))
    }
}
