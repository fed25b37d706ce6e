// One client connection. Internal to services/http: see server.h for the behaviour.
//
// Everything except the constructor, unsent() and closed() runs on the connection's strand. The
// read loop runs whenever `in_` has room or the answer is watched, in any state:
//
// With TLS the handshake comes first, in kReading.
//
//   kReading ──request complete──▶ kAnswering ──answer sent──▶ kReading, or kLingering
//      └──malformed, late──▶ kAnswering(error)                     (discards, so that the client
//                                                                    can read the answer), then
//                                                                    closed
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "services/http/message.h"
#include "services/http/request_reader.h"
#include "services/http/responder.h"
#include "services/http/server.h"
#include "services/http/transport.h"
#include "services/tls/roles.h"

namespace skein::services::http {

class Exchange;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // The socket's executor is this connection's strand. The core outlives the connection.
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ServerCore> core);
  ~Connection();

  void Start();
  void BeginDrain();  // close after the current answer, or the first; if idle after one: now
  // Close when idle, or after the current answer. One that has brought no request yet has a moment
  // to bring it, and is told 503 if none comes.
  void BeginStop();
  void EndAfterAnswer() { draining_ = true; }  // to the first request. REQUIRES: not started yet
  void Close(Gone why = Gone::kClient);
  void Stop() { Close(Gone::kStopped); }

  // Called by the Exchange, on the strand. Ignored unless `exchange` is the current serial. Pieces
  // are already framed.
  void SendHead(uint64_t exchange, Response response, bool stream);
  void SendPiece(uint64_t exchange, std::string piece);
  void SendEnd(uint64_t exchange);
  void AbortAnswer(uint64_t exchange);
  // From now until the answer's end, a client that leaves is noticed at once.
  void Watched(uint64_t exchange);

  boost::asio::any_io_executor executor() { return transport_.socket().get_executor(); }
  std::atomic<size_t>& unsent() { return unsent_; }
  size_t buffer_bytes_max() const;
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kReading, kAnswering, kLingering };

  void OnHandshake(boost::system::error_code ec);
  void TakeCertificate();
  // Whether the client has to present one to ask for `path`, and has not.
  bool LacksCertificate(std::string_view path) const;
  BodyPlanFn Planner();
  void CloseIfIdle();
  bool InIsFull() const;
  void Read();
  void OnRead(boost::system::error_code ec, size_t bytes);
  void OnReadEnd(boost::system::error_code ec);
  void Parse();
  bool HoldBody();
  void PassBody();
  void OnRoom(uint64_t serial);
  void Dispatch();
  void Fail(const Response& error);
  void BeginAnswer();
  void Queue(std::string_view bytes);
  void Flush();
  void OnSent(boost::system::error_code ec, size_t bytes);
  void OnAnswered();
  void Linger();
  void Arm(Clock::duration timeout);
  void ArmAt(Clock::time_point deadline);
  void Disarm();
  void WaitForDeadline();
  void OnDeadline();

  const std::shared_ptr<ServerCore> core_;  // first: owns the resources of the socket and the timer
  Transport transport_;
  boost::asio::steady_timer timer_;
  RequestReader reader_;
  std::shared_ptr<ByteBudget::Lease> held_;         // for the arriving body; null: none yet
  std::string in_;                                  // arrived, not consumed
  std::string scratch_;                             // target of the outstanding read
  std::shared_ptr<ByteBudget::Lease> answer_held_;  // for the answer that is sent; null: none
  std::string out_;                                 // to send after sending_
  std::string sending_;                             // being sent, from sent_ on
  size_t sent_ = 0;
  std::string remote_;
  std::optional<tls::RoleSet> certified_;  // what the client is by its certificate; empty: no one
  Request asked_;                          // the request being answered, without its body
  std::weak_ptr<Exchange> exchange_;
  uint64_t serial_ = 0;  // of the current exchange
  State state_ = State::kReading;
  Clock::time_point body_deadline_ = Clock::time_point::max();  // of a body that a sink takes
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point answer_deadline_ =
      Clock::time_point::max();  // of the current answer's last byte
  bool handshaking_ = false;
  bool reading_ = false, eof_ = false, writing_ = false, timer_waits_ = false;
  bool keep_alive_ = true, chunked_ = false, answer_ended_ = false, draining_ = false,
       head_request_ = false, watched_ = false, dropped_ = false, stopping_ = false;
  std::weak_ptr<BodySink> sink_;  // that takes the current request's body
  // Set: the sink is full, and nothing is read until it has room. This itself, because no call that
  // waits keeps it then.
  std::shared_ptr<Connection> waits_for_room_;
  std::atomic<size_t> unsent_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace skein::services::http
