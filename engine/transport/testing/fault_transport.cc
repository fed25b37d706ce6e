#include "engine/transport/testing/fault_transport.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace skein::engine {
namespace {

constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(1);

absl::Status Injected() { return absl::UnavailableError("injected fault"); }

// The pieces that make up the first half of the bytes.
std::vector<TransferPiece> FirstHalf(std::span<const TransferPiece> pieces) {
  uint64_t left = 0;
  for (const auto& piece : pieces) left += piece.bytes;
  left /= 2;
  std::vector<TransferPiece> half;
  for (TransferPiece piece : pieces) {
    piece.bytes = std::min(piece.bytes, left);
    left -= piece.bytes;
    half.push_back(piece);
  }
  return half;
}

std::chrono::steady_clock::time_point After(std::chrono::nanoseconds wait) {
  return std::chrono::steady_clock::now() +
         std::min<std::chrono::nanoseconds>(wait, std::chrono::hours(24 * 365));
}

}  // namespace

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, Plan plan)
    : inner_(std::move(inner)), plan_(std::move(plan)) {}

void FaultTransport::KillPeer(PeerId peer) {
  std::vector<TransferId> under_way;
  {
    std::lock_guard lock(mutex_);
    dead_.insert(peer);
    for (const auto& [id, record] : records_) {
      if (record.peer == peer) under_way.push_back(id);
    }
  }
  for (const TransferId id : under_way) inner_->Cancel(id);
  Wake();
}

absl::StatusOr<Region> FaultTransport::Register(void* base, size_t bytes) {
  return inner_->Register(base, bytes);
}

absl::Status FaultTransport::Unregister(RegionId region) { return inner_->Unregister(region); }

absl::StatusOr<std::string> FaultTransport::Describe(std::span<const RegionId> regions) {
  return inner_->Describe(regions);
}

absl::StatusOr<Peer> FaultTransport::Connect(std::string_view description) {
  auto peer = inner_->Connect(description);
  std::lock_guard lock(mutex_);
  if (peer.ok()) dead_.erase(peer->id);
  return peer;
}

absl::Status FaultTransport::Disconnect(PeerId peer) { return inner_->Disconnect(peer); }

absl::StatusOr<TransferId> FaultTransport::PostUnder(GrantId grant, PeerId peer, TransferOp op,
                                                     std::span<const TransferPiece> pieces,
                                                     std::chrono::nanoseconds timeout) {
  std::lock_guard lock(mutex_);
  if (dead_.contains(peer)) return Injected();
  auto id = inner_->PostUnder(grant, peer, op, pieces, timeout);
  if (!id.ok()) return id;
  const TransferFault fault = plan_(posts_++, peer);
  const bool moves = fault.kind == TransferFault::kNone || fault.kind == TransferFault::kDelay;
  if (!moves) inner_->Cancel(*id);
  if (fault.kind == TransferFault::kPartial) {
    auto half = inner_->PostUnder(grant, peer, op, FirstHalf(pieces), timeout);
    if (half.ok()) {
      checks_.insert(*id);
      id = half;
    }
  }
  records_[*id] = {peer, fault, After(timeout), false};
  return id;
}

void FaultTransport::Cancel(TransferId transfer) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = records_.find(transfer); found != records_.end()) {
      found->second.cancelled = true;
    }
    if (const auto found = stalled_.find(transfer); found != stalled_.end()) {
      found->second.cancelled = true;
    }
  }
  inner_->Cancel(transfer);
}

// What is due of the stalled and the held back. True if `out` grew.
bool FaultTransport::Release(size_t max, std::vector<TransferCompletion>* out) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto it = stalled_.begin(); it != stalled_.end();) {
    const Record& record = it->second;
    absl::Status end;
    if (dead_.contains(record.peer)) end = Injected();
    if (record.cancelled) end = absl::CancelledError("transfer cancelled");
    if (end.ok() && now >= record.deadline) end = absl::DeadlineExceededError("injected stall");
    if (!end.ok()) held_.push_back({{it->first, end, 0}, 0});
    it = end.ok() ? std::next(it) : stalled_.erase(it);
  }
  const size_t before = out->size();
  std::erase_if(held_, [&](Held& held) {
    if (--held.polls >= 0 || out->size() - before >= max) return false;
    out->push_back(std::move(held.completion));
    return true;
  });
  return out->size() > before;
}

void FaultTransport::Receive(TransferCompletion completion) {
  std::lock_guard lock(mutex_);
  if (checks_.erase(completion.id) > 0) return;
  const auto found = records_.find(completion.id);
  const Record record = found->second;
  records_.erase(found);
  int polls = 0;
  switch (record.fault.kind) {
    case TransferFault::kNone:
      break;
    case TransferFault::kDelay:
      polls = record.fault.polls;
      break;
    case TransferFault::kDrop:
    case TransferFault::kPartial:
      completion.status = Injected();
      break;
    case TransferFault::kStall:
      stalled_[completion.id] = record;
      return;
  }
  if (dead_.contains(record.peer) && !record.cancelled) completion.status = Injected();
  held_.push_back({std::move(completion), polls});
}

bool FaultTransport::Waiting() {
  std::lock_guard lock(mutex_);
  return !held_.empty() || !stalled_.empty();
}

// True if there are some to take.
bool FaultTransport::TakeInnerClosed() {
  const std::vector<GrantId> closed = inner_->TakeClosed();
  std::lock_guard lock(mutex_);
  closed_.insert(closed_.end(), closed.begin(), closed.end());
  return !closed_.empty();
}

size_t FaultTransport::Poll(size_t max, std::chrono::nanoseconds wait,
                            std::vector<TransferCompletion>* out) {
  const auto until = After(wait);
  const size_t before = out->size();
  for (;;) {
    if (Release(max, out)) return out->size() - before;
    const bool waiting = Waiting();
    const auto left = std::max<std::chrono::nanoseconds>(until - Clock::now(), {});
    std::vector<TransferCompletion> batch;
    inner_->Poll(max, waiting ? std::min(left, kNap) : left, &batch);
    for (auto& completion : batch) Receive(std::move(completion));
    if (TakeInnerClosed()) return 0;
    if (batch.empty() && (woken_.exchange(false) || Clock::now() >= until)) return 0;
  }
}

std::vector<GrantId> FaultTransport::TakeClosed() {
  std::lock_guard lock(mutex_);
  return std::exchange(closed_, {});
}

void FaultTransport::Wake() {
  woken_ = true;
  inner_->Wake();
}

absl::StatusOr<PeerInfo> FaultTransport::Inspect(PeerId peer) {
  auto info = inner_->Inspect(peer);
  std::lock_guard lock(mutex_);
  if (info.ok() && dead_.contains(peer)) info->broken = true;
  return info;
}

}  // namespace skein::engine
