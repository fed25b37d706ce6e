#include "services/http/connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <ctime>
#include <utility>

#include "services/http/error.h"
#include "services/http/exchange.h"
#include "services/http/request_id.h"
#include "services/http/server_core.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"
#include "services/tls/tls_files.h"

namespace skein::services::http {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr auto kHandshakeTimeout = std::chrono::seconds(10);
constexpr auto kLingerTimeout = std::chrono::seconds(2);
constexpr auto kFirstRequestTimeout = std::chrono::milliseconds(200);  // while the server stops

Response TooManyBytes(size_t limit_bytes) {
  Response response =
      ErrorResponse(429,
                    "The server's limit for bytes held by all requests (--max-held-bytes, " +
                        std::to_string(limit_bytes) + ") is reached. Retry later.",
                    {}, "rate_limit_exceeded");
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

Response Stopping() {
  Response response = ErrorResponse(503, "This server is shutting down.", {}, "draining");
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

// A kubelet has no certificate.
bool IsProbe(std::string_view path) {
  return path == "/livez" || path == "/readyz" || path == "/startupz" || path == "/health";
}

Response NoCertificate() {
  return ErrorResponse(403,
                       "This port wants a client certificate of an authority that it trusts "
                       "(--mtls=all).",
                       {}, "certificate_required");
}

}  // namespace

Connection::Connection(tcp::socket socket, std::shared_ptr<ServerCore> core)
    : core_(std::move(core)),
      transport_(std::move(socket), core_->ContextNow()),
      timer_(executor()),
      reader_(core_->options().header_bytes_max, core_->options().body_bytes_max, Planner(),
              core_->options().planned_bytes_max) {}

Connection::~Connection() { core_->Remove(this); }

size_t Connection::buffer_bytes_max() const { return core_->options().buffer_bytes_max; }

void Connection::Start() {
  error_code ec;
  transport_.socket().set_option(tcp::no_delay(true), ec);
  const auto peer = transport_.socket().remote_endpoint(ec);
  if (ec) return Close();
  remote_ = peer.address().to_string();
  if (!transport_.encrypted()) {
    Arm(stopping_ ? kFirstRequestTimeout : core_->options().idle_timeout);
    return Read();
  }
  handshaking_ = true;
  Arm(std::min<Clock::duration>(kHandshakeTimeout, core_->options().read_timeout));
  transport_.Handshake([self = shared_from_this()](error_code ec) { self->OnHandshake(ec); });
}

void Connection::OnHandshake(error_code ec) {
  handshaking_ = false;
  if (closed()) return;
  if (ec) {
    if (AdmitRepeated("TLS handshake failed")) {
      LogWarning("TLS handshake failed", {{"remote", remote_}, {"reason", ec.message()}});
    }
    if (!Transport::WasPlainHttp(ec)) return Close();
    transport_.Unwrap();
    return Fail(ErrorResponse(400, "This port speaks TLS: use https:// instead of http://.", {},
                              "tls_required"));
  }
  TakeCertificate();
  Arm(stopping_ ? kFirstRequestTimeout : core_->options().idle_timeout);
  Read();
}

// OpenSSL has checked its chain.
void Connection::TakeCertificate() {
  const std::string certificate = transport_.ClientCertificate();
  if (certificate.empty()) return;
  const auto names = tls::NamesIn(certificate);
  if (!names.ok()) return;
  certified_ = tls::RolesOf(*names, core_->options().certificates->files()->trust_domain);
}

bool Connection::LacksCertificate(std::string_view path) const {
  return core_->options().need_certificate && !certified_.has_value() && !IsProbe(path);
}

// The head as the server's owner knows requests: with the client's address and certificate.
BodyPlanFn Connection::Planner() {
  if (!core_->options().plan_body) return {};
  return [this](const Request& head) -> BodyPlan {
    if (LacksCertificate(head.path)) return {.refusal = NoCertificate()};
    Request known = head;
    known.remote = remote_;
    known.certified = certified_;
    return core_->options().plan_body(known);
  };
}

// The request of a client that has just connected may be on its way.
void Connection::BeginDrain() {
  draining_ = true;
  if (serial_ > 0) CloseIfIdle();
}

void Connection::BeginStop() {
  if (closed()) return;
  draining_ = true;
  stopping_ = true;
  if (serial_ > 0) return CloseIfIdle();
  if (!reader_.started() && !handshaking_) Arm(kFirstRequestTimeout);
}

void Connection::CloseIfIdle() {
  if (state_ == State::kReading && !reader_.started() && in_.empty()) Close();
}

void Connection::Close(Gone why) {
  if (closed_.exchange(true)) return;
  transport_.Close();
  timer_.cancel();
  core_->Remove(this);
  if (auto exchange = exchange_.lock()) exchange->OnGone(why);
  exchange_.reset();
  if (state_ == State::kReading) reader_.Forget();  // with the sink of a body that ends here
  waits_for_room_ = nullptr;
}

// ---- reading ----

bool Connection::InIsFull() const {
  return in_.size() >= core_->options().header_bytes_max + 2 * kReadBytes;
}

void Connection::Read() {
  if (reading_ || eof_ || closed() || waits_for_room_ != nullptr || (InIsFull() && !watched_))
    return;
  reading_ = true;
  scratch_.resize(kReadBytes);
  transport_.Read(asio::buffer(scratch_), [self = shared_from_this()](error_code ec, size_t bytes) {
    self->OnRead(ec, bytes);
  });
}

void Connection::OnRead(error_code ec, size_t bytes) {
  reading_ = false;
  if (closed()) return;
  if (ec) return OnReadEnd(ec);
  // The watched answer has just ended. Parsing pipelined requests first makes room.
  if (state_ == State::kReading && InIsFull()) Parse();
  if (closed()) return;
  if (state_ == State::kAnswering && InIsFull()) {  // part of the pipelined data was dropped
    dropped_ = true;
    keep_alive_ = false;
  } else if (state_ != State::kLingering) {
    in_.append(scratch_, 0, bytes);
  }
  if (state_ == State::kReading) Parse();
  Read();
}

// The client sends nothing more. It counts as gone, unless its answer is being sent already.
void Connection::OnReadEnd(error_code ec) {
  eof_ = true;
  keep_alive_ = false;
  if (!Transport::IsEnd(ec)) return Close();
  if (state_ == State::kReading && reader_.started()) {
    return Fail(ErrorResponse(400, "The request ended before it was complete.", {}, "bad_request"));
  }
  if (state_ != State::kAnswering || !answer_ended_) Close();
}

void Connection::Parse() {
  const bool had_started = reader_.started();
  size_t consumed = 0;
  const RequestReader::State state = reader_.Feed(in_, &consumed);
  in_.erase(0, consumed);
  if (state == RequestReader::State::kError) return Fail(reader_.error());
  if (reader_.sink() != nullptr) PassBody();
  if (!HoldBody()) return Fail(TooManyBytes(core_->options().bodies->bytes_max()));
  switch (state) {
    case RequestReader::State::kMore:
      if (!had_started && reader_.started() && reader_.sink() == nullptr) {
        Arm(core_->options().read_timeout);
      }
      return;
    case RequestReader::State::kContinue:
      Queue("HTTP/1.1 100 Continue\r\n\r\n");
      if (!had_started && reader_.sink() == nullptr) Arm(core_->options().read_timeout);
      return Flush();
    case RequestReader::State::kDone:
      return Dispatch();
    case RequestReader::State::kError:
      break;
  }
}

// What has arrived of the body goes to its sink. A sink that is full is not the client's fault, so
// no time of the client's runs meanwhile.
void Connection::PassBody() {
  const std::shared_ptr<BodySink>& sink = reader_.sink();
  if (sink_.lock() != sink) {
    sink_ = sink;
    body_deadline_ = Clock::now() + kSunkBodyMax;
    sink->Start([weak = weak_from_this(), serial = serial_ + 1] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      asio::post(self->executor(), [self, serial] { self->OnRoom(serial); });
    });
  }
  const std::string piece = reader_.TakeBody();
  if (!piece.empty() && !sink->Take(piece)) {
    waits_for_room_ = shared_from_this();
    return Disarm();
  }
  ArmAt(std::min(Clock::now() + core_->options().read_timeout, body_deadline_));
}

// The sink of the request that becomes the exchange `serial` takes more.
void Connection::OnRoom(uint64_t serial) {
  if (closed() || serial != serial_ + 1) return;
  if (std::exchange(waits_for_room_, nullptr) == nullptr) return;
  ArmAt(std::min(Clock::now() + core_->options().read_timeout, body_deadline_));
  Read();
}

// False: the byte budget for all connections has no room for what has arrived.
bool Connection::HoldBody() {
  const size_t bytes = reader_.body_bytes();
  if (core_->options().bodies == nullptr || bytes == 0) return true;
  if (held_ == nullptr) held_ = std::make_shared<ByteBudget::Lease>(core_->options().bodies);
  return held_->Resize(bytes);
}

void Connection::Watched(uint64_t exchange) {
  if (exchange != serial_ || state_ != State::kAnswering || closed()) return;
  watched_ = true;
  Read();
}

void Connection::Dispatch() {
  core_->CountRequest();
  waits_for_room_ = nullptr;
  Disarm();
  BeginAnswer();
  answer_ended_ = false;
  keep_alive_ = reader_.keep_alive() && !dropped_;
  chunked_ = !reader_.http10();
  Request request = reader_.Take();
  request.remote = remote_;
  request.certified = certified_;
  request.id = RequestIdOf(request.headers);
  request.held = std::move(held_);
  asked_ = {.method = request.method,
            .path = request.path,
            .query = request.query,
            .headers = request.headers,
            .remote = remote_,
            .id = request.id};
  head_request_ = request.method == "HEAD";
  auto exchange = std::make_shared<Exchange>(shared_from_this(), ++serial_, chunked_);
  exchange_ = exchange;
  if (LacksCertificate(request.path)) return exchange->Send(NoCertificate());
  core_->fn()(std::move(request), std::move(exchange));
}

void Connection::Fail(const Response& error) {
  BeginAnswer();
  keep_alive_ = false;
  asked_ = reader_.Seen();
  asked_.remote = remote_;
  asked_.id = RequestIdOf(asked_.headers);
  head_request_ = asked_.method == "HEAD";
  reader_.Forget();
  waits_for_room_ = nullptr;
  held_.reset();
  SendHead(++serial_, error, false);
}

// ---- answering ----

void Connection::BeginAnswer() {
  state_ = State::kAnswering;
  const ServerOptions& options = core_->options();
  answer_deadline_ = options.answer_timeout.count() == 0
                         ? Clock::time_point::max()
                         : Clock::now() + options.answer_timeout + options.write_timeout;
}

void Connection::SendHead(uint64_t exchange, Response response, bool stream) {
  if (exchange != serial_ || state_ != State::kAnswering || closed()) return;
  if (stream && !chunked_) keep_alive_ = false;
  if (draining_ || FindHeader(response.headers, "Connection") == "close") keep_alive_ = false;
  std::erase_if(response.headers, [](const Header& h) { return h.name == "Connection"; });
  core_->Complete(asked_, &response);
  const Framing framing = !stream    ? Framing::kLength
                          : chunked_ ? Framing::kChunked
                                     : Framing::kUntilClose;
  if (response.within.has_value() && answer_deadline_ != Clock::time_point::max()) {
    answer_deadline_ = Clock::now() + *response.within + core_->options().write_timeout;
  }
  Queue(SerializeHead(response, framing, keep_alive_, std::time(nullptr)));
  if (!stream) {
    if (!head_request_) Queue(response.body);
    answer_held_ = std::move(response.held);
    answer_ended_ = true;
  }
  Flush();
}

void Connection::SendPiece(uint64_t exchange, std::string piece) {
  if (exchange != serial_ || closed()) return;
  if (head_request_) {
    unsent_.fetch_sub(piece.size());
    if (auto exchange = exchange_.lock()) exchange->OnSent();  // nothing is sent of it
    return;
  }
  out_ += piece;
  Flush();
}

void Connection::SendEnd(uint64_t exchange) {
  if (exchange != serial_ || closed()) return;
  if (chunked_ && !head_request_) Queue("0\r\n\r\n");
  answer_ended_ = true;
  Flush();
}

void Connection::AbortAnswer(uint64_t exchange) {
  if (exchange == serial_) Close();
}

// Everything in out_ and sending_ is counted in unsent_; the writer has counted the pieces.
void Connection::Queue(std::string_view bytes) {
  unsent_.fetch_add(bytes.size());
  out_ += bytes;
}

void Connection::Flush() {
  if (writing_ || closed()) return;
  if (sent_ == sending_.size()) {
    sending_.clear();
    sending_.swap(out_);
    sent_ = 0;
  }
  if (sending_.empty()) {
    if (state_ == State::kAnswering && answer_ended_) OnAnswered();
    return;
  }
  writing_ = true;
  if (state_ == State::kAnswering) {
    ArmAt(std::min(Clock::now() + core_->options().write_timeout, answer_deadline_));
  }
  transport_.Write(
      asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
      [self = shared_from_this()](error_code ec, size_t bytes) { self->OnSent(ec, bytes); });
}

void Connection::OnSent(error_code ec, size_t bytes) {
  writing_ = false;
  if (closed()) return;
  if (ec) return Close();
  sent_ += bytes;
  if (state_ == State::kAnswering) Disarm();
  unsent_.fetch_sub(bytes);
  if (auto exchange = exchange_.lock()) exchange->OnSent();
  Flush();
}

void Connection::OnAnswered() {
  exchange_.reset();
  answer_held_.reset();
  watched_ = false;
  Disarm();
  if (!keep_alive_) return Linger();
  state_ = State::kReading;
  answer_ended_ = false;
  if (draining_ && in_.empty()) return Close();
  Arm(core_->options().idle_timeout);
  // Posted instead of called: a client that pipelines many requests must not grow the stack.
  asio::post(executor(), [self = shared_from_this()] {
    if (self->closed() || self->state_ != State::kReading) return;
    self->Parse();
    self->Read();
  });
}

// The answer is sent; the client may still be sending. Closing now would reset the connection and
// could lose the answer, so incoming data is discarded for a while.
void Connection::Linger() {
  state_ = State::kLingering;
  if (eof_) return Close();
  in_.clear();
  Arm(kLingerTimeout);
  transport_.EndSending([self = shared_from_this()] { self->Read(); });
}

// ---- deadlines: one timer, moved lazily ----

void Connection::Arm(Clock::duration timeout) { ArmAt(Clock::now() + timeout); }

void Connection::ArmAt(Clock::time_point deadline) {
  deadline_ = deadline;
  if (!timer_waits_ || timer_.expiry() > deadline_) WaitForDeadline();
}

void Connection::Disarm() { deadline_ = Clock::time_point::max(); }

void Connection::WaitForDeadline() {
  timer_.expires_at(deadline_);  // cancels an earlier wait
  timer_waits_ = true;
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    auto self = weak.lock();
    if (self == nullptr || ec == asio::error::operation_aborted || self->closed()) return;
    self->timer_waits_ = false;
    self->OnDeadline();
  });
}

void Connection::OnDeadline() {
  if (deadline_ == Clock::time_point::max()) return;
  if (Clock::now() < deadline_) return WaitForDeadline();
  if (handshaking_) return Close();
  if (state_ == State::kReading && reader_.started()) {
    return Fail(ErrorResponse(408, "The request did not arrive in time.", {}, "request_timeout"));
  }
  if (state_ == State::kReading && stopping_) {
    return Fail(Stopping());
  }
  Close(state_ == State::kAnswering ? Gone::kStalled : Gone::kClient);
}

}  // namespace skein::services::http
