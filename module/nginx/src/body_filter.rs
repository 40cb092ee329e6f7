//! Filters that put another body in the place of a response's, as it comes.
//!
//! Shape:   the module says, by the head, whether a body goes through its [`Encoder`]
//!          ([`BodyFilter::encoder`]). The layer keeps what nginx gives until the encoder takes it,
//!          and hands on what comes out, in a few buffers of its own.
//! Bounds:  a client that does not read gets no more than four buffers, and nothing is taken of the
//!          endpoint's answer meanwhile: buffers that nginx gave stay full, so it does not read on.
//!          The encoders of a worker take their share of each turn of the event loop, `turns`.
//! Errors:  an encoder that fails, or panics, ends the response where it is: the client sees that
//!          it is not whole.
//! Source:  ngx_http_gzip_body_filter.

mod input;
mod output;
mod turns;

use crate::basic::callback::{alone, one, two_at_most};
use crate::basic::chain::Link;
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::conf::Conf;
use crate::conf::module::{Directive, Shared, step, table};
use crate::request::Request;
use crate::request::filters::NextFilters;
use crate::sys::{NGX_HTTP_MODULE, ngx_http_module_t, ngx_int_t, ngx_module_t};
use input::Input;
use output::Output;
use std::cell::RefCell;
use std::marker::PhantomData;
use turns::Place;

/// What is asked of an encoder beside the bytes that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Nothing: it may keep what it likes.
    More,
    /// The other end is to be able to read all that was given.
    Flush,
    /// The body ends here.
    Finish,
}

/// What an encoder has done.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    /// Bytes of the input that it has taken.
    pub taken: usize,
    /// Bytes that it has written.
    pub written: usize,
    /// All input is taken, and all that was asked for is written.
    pub is_done: bool,
}

/// Makes another body of a response's.
pub trait Encoder: 'static {
    /// Takes from the input and writes to the output, as far as there is room; it is called again
    /// with what is left, and the same question, until it is done. `None`: it failed.
    fn encode(&mut self, input: &[u8], ask: Ask, output: &mut [u8]) -> Option<Encoded>;
    /// It holds bytes that are not written.
    fn is_behind(&self) -> bool;
    /// The most bytes of input that a worker gives its encoders in one turn of its event loop, by
    /// this one's pace.
    fn bytes_of_turn(&self) -> usize;
}

/// A filter of bodies.
pub trait BodyFilter: 'static {
    /// For the error log.
    const NAME: &'static str;
    /// What bodies go through.
    type Encoder: Encoder;
    /// Where the rest of the chains is kept.
    fn next() -> &'static NextFilters;
    /// Whether it is put into nginx's chains, when `http` has been read and merged.
    fn is_wanted(conf: &mut Conf) -> bool;
    /// Looks at the head of the response to a client's own request, before nginx's filters from
    /// gzip on, and changes it for the body that will be; `None` leaves both as they are. An error:
    /// the response cannot be sent.
    fn encoder(request: &Request) -> Result<Option<Self::Encoder>, Code>;
}

/// What nginx calls of a module that is this filter. Where the filter stands among nginx's own is
/// where the module does.
pub const fn filter_context<F: BodyFilter>() -> Shared<ngx_http_module_t> {
    Shared(ngx_http_module_t {
        preconfiguration: None,
        postconfiguration: Some(alone(install::<F>)),
        create_main_conf: None,
        init_main_conf: None,
        create_srv_conf: None,
        merge_srv_conf: None,
        create_loc_conf: None,
        merge_loc_conf: None,
    })
}

/// The table of such a module.
pub const fn filter_module(context: &'static Shared<ngx_http_module_t>) -> ngx_module_t {
    table(std::ptr::from_ref(context).cast(), &[Directive::END], NGX_HTTP_MODULE)
}

extern "C" fn install<F: BodyFilter>(conf: &mut Conf) -> ngx_int_t {
    step(F::NAME, || {
        if F::is_wanted(conf) {
            F::next().stand_before(one(head::<F>), Some(two_at_most(body::<F>)));
        }
        Ok(())
    })
}

/// A response's body on its way through an encoder, in the request's pool.
struct Coding<F: BodyFilter> {
    stream: RefCell<Stream<F::Encoder>>,
    filter: PhantomData<F>,
}

struct Stream<E> {
    /// `None`: it has written all, or failed.
    encoder: Option<E>,
    has_failed: bool,
    input: Input,
    /// What was asked for behind input that is all taken, and is not written yet.
    asked: Option<Ask>,
    output: Output,
    place: Place,
}

/// nginx's callback for the head of a response.
extern "C" fn head<F: BodyFilter>(request: &Request) -> ngx_int_t {
    let begun = contain(F::NAME, Err(Code::ERROR), || {
        if !request.is_main() || request.is_header_only() {
            return Ok(());
        }
        let Some(encoder) = F::encoder(request)? else { return Ok(()) };
        let stream = Stream {
            encoder: Some(encoder),
            has_failed: false,
            input: Input::default(),
            asked: None,
            output: Output::default(),
            place: Place::default(),
        };
        let coding = Coding::<F> { stream: RefCell::new(stream), filter: PhantomData };
        request.pool().keep(coding).ok_or(Code::ERROR)?;
        // What lies in files comes in memory.
        request.set_main_filter_need_in_memory(true);
        Ok(())
    });
    match begun {
        Ok(()) => F::next().go_on(request, None).0,
        Err(code) => code.0,
    }
}

/// nginx's callback for a part of a body; without one nginx asks to go on with what there is.
extern "C" fn body<F: BodyFilter>(request: &Request, part: Option<&Link>) -> ngx_int_t {
    let coding = match request.is_main() && !request.is_header_only() {
        true => request.pool().kept::<Coding<F>>().next(),
        false => None,
    };
    let Some(coding) = coding else { return F::next().go_on(request, Some(part)).0 };
    let answer = contain(F::NAME, None, || {
        let mut stream = coding.stream.try_borrow_mut().ok()?;
        stream.run(request, F::next(), part, resume::<F>)
    });
    if answer.is_none() {
        // The client is to see that the body is not whole, whoever ends the request.
        request.connection().set_failed();
        // Of a panic in the encoder nothing is left to go on with.
        if let Ok(mut stream) = coding.stream.try_borrow_mut() {
            (stream.encoder, stream.has_failed) = (None, true);
        }
    }
    answer.unwrap_or(Code::ERROR).0
}

/// Goes on with what there is.
fn resume<F: BodyFilter>(request: &Request) {
    // What fails fails again where nginx sees it.
    let _ = body::<F>(request, None);
}

/// What takes up a response where encoding stopped for want of time.
type Resume = fn(&Request);

/// What a flush counts at least, in bytes of input: a block of its own is begun for it.
const BYTES_OF_FLUSH: usize = 256;

/// Why encoding stops for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// There is something to hand on.
    Ready,
    /// There is no input.
    Starved,
    /// All buffers are with the client.
    Full,
    /// This turn of the event loop is over.
    Late,
}

impl<E: Encoder> Stream<E> {
    /// Takes a part and hands on what comes of it, as far as the client and the turn of the event
    /// loop let it. `None`: it failed.
    fn run(
        &mut self,
        request: &Request,
        next: &NextFilters,
        part: Option<&Link>,
        resume: Resume,
    ) -> Option<Code> {
        if self.has_failed {
            return None;
        }
        if self.encoder.is_none() && self.input.is_empty() {
            // It has ended; this asks for what is still on its way.
            let answer = next.go_on(request, Some(part));
            self.output.reclaim();
            return Some(answer);
        }
        self.input.take(request.pool(), part)?;
        let mut goes_on = self.output.is_busy();
        if self.output.is_full() {
            self.hand_on(request, next)?;
            goes_on = false;
        }
        loop {
            let stop = loop {
                match self.step(request)? {
                    None => {}
                    Some(stop) => break stop,
                }
            };
            self.tell(request, stop);
            if !self.output.is_ready() && !goes_on {
                if stop == Stop::Late {
                    self.place.wait(request, resume)?;
                }
                let is_all = stop != Stop::Late && !self.output.is_busy();
                return Some(if is_all { Code::OK } else { Code::AGAIN });
            }
            let answer = self.hand_on(request, next)?;
            goes_on = false;
            if self.encoder.is_none() {
                return Some(answer);
            }
        }
    }

    /// Gives the encoder a piece of input; `Some(None)`: it may be called again at once.
    fn step(&mut self, request: &Request) -> Option<Option<Stop>> {
        let Some(encoder) = &mut self.encoder else { return Some(Some(Stop::Starved)) };
        if let Some(ask) = self.asked {
            let Some(room) = self.output.room() else { return Some(Some(Stop::Full)) };
            let encoded = encoder.encode(&[], ask, room)?;
            self.asked = Some(ask).filter(|_| !encoded.is_done);
            return Some(self.take(encoded, ask, encoded.is_done));
        }
        let Some((buffer, ask)) = self.input.first() else { return Some(Some(Stop::Starved)) };
        let unread = buffer.unread_bytes();
        let offered = unread.min(self.place.left(request, encoder.bytes_of_turn()));
        if offered == 0 && unread > 0 {
            return Some(Some(Stop::Late));
        }
        let Some(room) = self.output.room() else { return Some(Some(Stop::Full)) };
        let now = if offered < unread { Ask::More } else { ask };
        let encoded = buffer.look(|bytes| encoder.encode(bytes.get(..offered)?, now, room))?;
        buffer.advance(encoded.taken.min(offered));
        let least = if now == Ask::Flush { BYTES_OF_FLUSH } else { 0 };
        self.place.spend(request, encoded.taken.max(least));
        let is_read = buffer.unread_bytes() == 0;
        if is_read {
            // Whose it is may write to it again from now on, and say something else of it.
            self.input.pop();
        }
        let stop = self.take(encoded, ask, is_read && encoded.is_done);
        self.asked = Some(ask).filter(|_| is_read && !encoded.is_done && ask != Ask::More);
        Some(stop)
    }

    /// Takes what was written, for input behind which that is asked for. `is_done`: it is all
    /// there.
    fn take(&mut self, encoded: Encoded, ask: Ask, is_done: bool) -> Option<Stop> {
        let is_full = self.output.wrote(encoded.written, ask == Ask::Flush);
        match ask {
            Ask::More => return is_full.then_some(Stop::Ready),
            Ask::Flush if is_done => self.output.flush(),
            Ask::Finish if is_done => {
                self.output.finish();
                // Its memory goes now: a slow client may need hours for the rest.
                self.encoder = None;
            }
            _ => {}
        }
        (is_full || is_done).then_some(Stop::Ready)
    }

    /// Tells nginx whether there is more to send.
    fn tell(&mut self, request: &Request, stop: Stop) {
        let is_behind = self.encoder.as_ref().is_some_and(|encoder| encoder.is_behind());
        request.connection().set_has_coded_rest(is_behind || !self.input.is_empty());
        if matches!(stop, Stop::Starved | Stop::Full) || self.encoder.is_none() {
            self.place.leave();
        }
    }

    /// Hands on what is ready, and takes back what was sent. `None`: it failed.
    fn hand_on(&mut self, request: &Request, next: &NextFilters) -> Option<Code> {
        let answer = next.go_on(request, Some(self.output.chain()));
        self.output.reclaim();
        (answer != Code::ERROR).then_some(answer)
    }
}
