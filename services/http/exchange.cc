#include "services/http/exchange.h"

#include <boost/asio/post.hpp>
#include <cstdio>
#include <utility>

#include "services/http/connection.h"
#include "services/http/error.h"

namespace skein::services::http {
namespace {

std::string AsChunk(const std::string& piece) {
  char size[20];
  std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
  return size + piece + "\r\n";
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Connection> connection, uint64_t serial, bool chunked)
    : connection_(std::move(connection)), serial_(serial), chunked_(chunked) {}

// The owner has dropped the request without an answer.
Exchange::~Exchange() {
  const Phase phase = phase_.load();
  if (phase == Phase::kEnded || connection_->closed()) return;
  boost::asio::post(connection_->executor(), [connection = connection_, serial = serial_, phase] {
    if (phase == Phase::kStreaming) return connection->AbortAnswer(serial);
    connection->SendHead(serial, ErrorResponse(500, "The request was not answered."), false);
  });
}

// Runs `f` on the strand with this exchange's serial; the exchange may be destroyed by then.
template <typename F>
void Exchange::Post(F f) {
  if (connection_->closed()) return;
  boost::asio::post(connection_->executor(),
                    [connection = connection_, serial = serial_, f = std::move(f)]() mutable {
                      f(connection.get(), serial);
                    });
}

bool Exchange::End() {
  const bool first = phase_.exchange(Phase::kEnded) != Phase::kEnded;
  if (first) ForgetCallbacks();
  return first;
}

void Exchange::ForgetCallbacks() {
  std::function<void(Gone)> gone;  // destroyed outside the lock, because they may own much
  std::function<void()> drained;
  std::lock_guard<std::mutex> lock(mutex_);
  gone.swap(gone_);
  drained.swap(drained_);
}

void Exchange::Send(Response response) {
  if (phase_.load() != Phase::kOpen || !End()) return;
  Post([response = std::move(response)](Connection* connection, uint64_t serial) mutable {
    connection->SendHead(serial, std::move(response), false);
  });
}

void Exchange::StartStream(Response head) {
  Phase open = Phase::kOpen;
  if (!phase_.compare_exchange_strong(open, Phase::kStreaming)) return;
  std::string first = std::move(head.body);
  head.body.clear();
  Post([head = std::move(head)](Connection* connection, uint64_t serial) mutable {
    connection->SendHead(serial, std::move(head), true);
  });
  if (!first.empty()) Write(std::move(first));
}

bool Exchange::Write(std::string piece) {
  if (phase_.load() != Phase::kStreaming || piece.empty() || connection_->closed()) return true;
  if (chunked_) piece = AsChunk(piece);
  const size_t unsent = connection_->unsent().fetch_add(piece.size()) + piece.size();
  const bool full = unsent > connection_->buffer_bytes_max();
  if (full) full_.store(true);  // before the piece is posted, so that its sending sees it
  Post([piece = std::move(piece)](Connection* connection, uint64_t serial) mutable {
    connection->SendPiece(serial, std::move(piece));
  });
  return !full;
}

void Exchange::Finish() {
  if (phase_.load() != Phase::kStreaming || !End()) return;
  Post([](Connection* connection, uint64_t serial) { connection->SendEnd(serial); });
}

void Exchange::Abort() {
  if (!End()) return;
  Post([](Connection* connection, uint64_t serial) { connection->AbortAnswer(serial); });
}

void Exchange::Watch(std::function<void(Gone)> gone, std::function<void()> drained) {
  std::optional<Gone> why;
  bool drained_before = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    why = gone_why_;
    if (!why.has_value()) {
      if (phase_.load() == Phase::kEnded) return;
      gone_ = std::move(gone);
      drained_ = drained;
      watched_ = true;
      drained_before = drained_before_;
    }
  }
  if (why.has_value()) {
    if (gone) gone(*why);
    return;
  }
  if (drained_before && drained) drained();
  Post([](Connection* connection, uint64_t serial) { connection->Watched(serial); });
}

void Exchange::OnGone(Gone why) {
  std::function<void(Gone)> gone;
  std::function<void()> drained;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gone_why_ = why;
    gone.swap(gone_);
    drained.swap(drained_);
  }
  phase_.store(Phase::kEnded);
  if (gone) gone(why);
}

void Exchange::OnSent() {
  if (!full_.load() || connection_->unsent().load() * 2 > connection_->buffer_bytes_max()) return;
  full_.store(false);
  std::function<void()> drained;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    drained = drained_;
    if (!watched_) drained_before_ = true;
  }
  if (drained) drained();
}

}  // namespace skein::services::http
