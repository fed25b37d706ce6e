#include "engine/transport/wire_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kRegionsMax = 4096;
constexpr size_t kPeersMax = 1024;
constexpr size_t kTransfersMax = 4096;
constexpr uint64_t kSegmentsMax = 4 << 20;
constexpr uint64_t kPumpBytes = 4 << 20;  // new operations per peer and hold of the lock
constexpr int kIdleRounds = 64;           // before sleeping although there may be something to do
// Of a Poll whose wait is over although there is work: enough to drain two full socket buffers by
// single receives, which transport.h promises of one Poll.
constexpr int kRoundsPerPoll = 512;
// While operations are under way the peer's progress may come without an event; look anyway. So
// with a wire that cannot be armed and does not move: it lacks what others may give back.
constexpr auto kNapInFlight = std::chrono::milliseconds(1);
// The death of an idle peer comes without an event, too.
constexpr auto kNapConnected = std::chrono::milliseconds(200);

using Lock = std::lock_guard<FairMutex>;

uint64_t RandomIncarnation() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Saturates: a caller may pass nanoseconds::max() for "no bound".
TransportClock::time_point After(std::chrono::nanoseconds wait) {
  const auto now = TransportClock::now();
  const auto longest = std::chrono::hours(24 * 365);
  return now + std::min<std::chrono::nanoseconds>(wait, longest);
}

absl::Status Unknown(const char* what, uint64_t id) {
  return absl::NotFoundError(absl::StrCat("unknown ", what, " ", id));
}

}  // namespace

WireTransport::WireTransport(TransportKind kind, std::string worker_address,
                             std::unique_ptr<Wire> wire)
    : kind_(kind),
      incarnation_(RandomIncarnation()),
      worker_address_(std::move(worker_address)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      wire_(std::move(wire)),
      grants_(wire_->Grants()) {
  SKEIN_CHECK(wake_fd_ >= 0);
}

WireTransport::~WireTransport() {
  peers_.clear();
  for (auto& [id, region] : regions_) wire_->Unmap(region.mapping.handle);
  close(wake_fd_);
}

absl::StatusOr<Region> WireTransport::Register(void* base, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(base);
  if (bytes == 0) return absl::InvalidArgumentError("a region of zero bytes");
  if (address > UINT64_MAX - bytes) return absl::InvalidArgumentError("the region wraps");
  Lock lock(mutex_);
  if (regions_.size() >= kRegionsMax) return absl::ResourceExhaustedError("too many regions");
  auto mapping = wire_->Map(base, bytes);
  if (!mapping.ok()) return mapping.status();
  const RegionId id{next_id_++};
  const Region region{id, mapping->base, bytes};
  regions_[id] = {{reinterpret_cast<uint64_t>(mapping->base), bytes}, *std::move(mapping), 0};
  return region;
}

absl::Status WireTransport::Unregister(RegionId region) {
  Lock lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) return Unknown("region", region.value);
  if (found->second.segments_in_use > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", region.value, " is in use by a transfer"));
  }
  wire_->Unmap(found->second.mapping.handle);
  regions_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<std::string> WireTransport::Describe(std::span<const RegionId> regions) {
  if (regions.size() > kDescriptionRegionsMax) {
    return absl::InvalidArgumentError("too many regions for one description");
  }
  Lock lock(mutex_);
  Description description{kind_, incarnation_, {}, worker_address_, {}};
  std::set<RegionId> seen;
  for (const RegionId id : regions) {
    const auto found = regions_.find(id);
    if (found == regions_.end()) return Unknown("region", id.value);
    if (!seen.insert(id).second) return absl::InvalidArgumentError("a region is listed twice");
    const auto& [extent, mapping, use] = found->second;
    description.regions.push_back({id.value, extent.address, extent.bytes, mapping.key});
  }
  return SerializeDescription(description);
}

absl::StatusOr<Peer> WireTransport::Connect(std::string_view text) {
  auto description = ParseDescription(text);
  if (!description.ok()) return description.status();
  if (description->kind != kind_) {
    return absl::InvalidArgumentError("transport description: of another kind of transport");
  }
  Lock lock(mutex_);
  const std::pair key(description->worker_address, description->incarnation);
  const auto known = peer_ids_.find(key);
  const bool is_new = known == peer_ids_.end();
  if (is_new && peers_.size() >= kPeersMax) return absl::ResourceExhaustedError("too many peers");
  const PeerId id = is_new ? PeerId{next_id_++} : known->second;
  std::unique_ptr<PeerQueue>& peer = peers_[id];
  if (is_new) peer = std::make_unique<PeerQueue>(id, wire_.get());
  if (auto status = peer->AddRegions(*description); !status.ok()) {
    if (is_new) peers_.erase(id);
    return status;
  }
  peer_ids_[key] = id;
  peer->AskFor(description->grant);
  Signal();
  Peer result{id, {}, description->grant};
  for (const DescribedRegion& region : description->regions) {
    result.regions.push_back(RegionId{region.id});
  }
  return result;
}

absl::Status WireTransport::Disconnect(PeerId peer) {
  Lock lock(mutex_);
  PeerQueue* const queue = FindPeer(peer);
  if (queue == nullptr) return Unknown("peer", peer.value);
  queue->Break(absl::UnavailableError("the peer was disconnected"));
  std::vector<std::unique_ptr<Transfer>> ended;
  uint64_t budget = 0;
  queue->Pump(TransportClock::now(), &budget, &ended);
  Collect(std::move(ended));
  peers_.erase(peer);
  std::erase_if(peer_ids_, [&](const auto& entry) { return entry.second == peer; });
  Signal();
  return absl::OkStatus();
}

absl::StatusOr<TransferId> WireTransport::PostUnder(GrantId grant, PeerId peer, TransferOp op,
                                                    std::span<const TransferPiece> pieces,
                                                    std::chrono::nanoseconds timeout) {
  Lock lock(mutex_);
  PeerQueue* const queue = FindPeer(peer);
  if (queue == nullptr) return Unknown("peer", peer.value);
  if (queue->broken())
    return absl::UnavailableError(absl::StrCat("peer ", peer.value, " is broken"));
  if (transfers_.size() + completions_.size() >= kTransfersMax) {
    return absl::ResourceExhaustedError("too many transfers");
  }
  if (segments_queued_ + pieces.size() > kSegmentsMax) {
    return absl::ResourceExhaustedError("too many pieces");
  }
  const auto local = [&](RegionId id) -> const RegionExtent* {
    const auto found = regions_.find(id);
    return found == regions_.end() ? nullptr : &found->second.extent;
  };
  auto segments = ToSegments(pieces, local, [&](RegionId id) { return queue->FindRegion(id); });
  if (!segments.ok()) return segments.status();
  auto transfer = std::make_unique<Transfer>();
  transfer->id = TransferId{next_id_++};
  transfer->op = op;
  if (op == TransferOp::kPut) transfer->ticket.grant = grant.value;
  transfer->segments = *std::move(segments);
  transfer->deadline = After(timeout);
  segments_queued_ += transfer->segments.size();
  for (const Segment& segment : transfer->segments) ++regions_.at(segment.local).segments_in_use;
  const TransferId id = transfer->id;
  transfers_[id] = peer;
  queue->Push(std::move(transfer));
  Signal();
  return id;
}

void WireTransport::Cancel(TransferId transfer) {
  Lock lock(mutex_);
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  peers_.at(found->second)->Cancel(transfer);
  Signal();
}

absl::StatusOr<PeerInfo> WireTransport::Inspect(PeerId peer) {
  Lock lock(mutex_);
  PeerQueue* const queue = FindPeer(peer);
  if (queue == nullptr) return Unknown("peer", peer.value);
  return queue->Info(TransportClock::now());
}

// Neither waits for the lock, which Poll holds while it moves bytes: both are on the way of a first
// token.
void WireTransport::OpenGrant(GrantId grant) { grants_->Open(grant.value); }

void WireTransport::CloseGrant(GrantId grant) {
  closings_.Add(grant);
  Signal();
}

std::vector<GrantId> WireTransport::TakeClosed() {
  Lock lock(mutex_);
  return std::exchange(closed_, {});
}

void WireTransport::Wake() {
  woken_.store(true);
  Lock lock(mutex_);
  Signal();
}

PeerQueue* WireTransport::FindPeer(PeerId peer) {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second.get();
}

void WireTransport::Signal() {
  if (!sleeping_.load()) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

size_t WireTransport::Poll(size_t max, std::chrono::nanoseconds wait,
                           std::vector<TransferCompletion>* out) {
  const size_t before = out->size();
  PollState state;
  state.until = After(wait);
  for (;;) {
    const Round round = PollOnce(max, &state, out);
    if (round == Round::kReturn) return out->size() - before;
    if (round == Round::kSleep) Sleep(state);
  }
}

WireTransport::Round WireTransport::PollOnce(size_t max, PollState* state,
                                             std::vector<TransferCompletion>* out) {
  Lock lock(mutex_);
  sleeping_.store(false);
  const bool moved = Pump();
  const size_t taken = std::min(max, completions_.size());
  for (size_t i = 0; i < taken; ++i) {
    out->push_back(std::move(completions_.front()));
    completions_.pop_front();
  }
  if (taken > 0 || !closed_.empty() || woken_.exchange(false)) return Round::kReturn;
  const bool late = TransportClock::now() >= state->until;
  if (late && (!moved || ++state->rounds >= kRoundsPerPoll)) return Round::kReturn;
  if (moved) {
    state->idle_rounds = 0;
    return Round::kAgain;
  }
  return PrepareSleep(state);
}

WireTransport::Round WireTransport::PrepareSleep(PollState* state) {
  state->sleep_until = state->until;
  bool in_flight = false;
  for (const auto& [id, peer] : peers_) {
    state->sleep_until = std::min(state->sleep_until, peer->NextDeadline());
    in_flight |= peer->in_flight();
  }
  if (!peers_.empty()) {
    state->sleep_until = std::min(state->sleep_until, TransportClock::now() + kNapConnected);
  }
  if (in_flight && ++state->idle_rounds < kIdleRounds) return Round::kAgain;
  const std::optional<int> fd = wire_->Arm();
  if (!fd.has_value() && ++state->idle_rounds < kIdleRounds) return Round::kAgain;
  if (in_flight || !fd.has_value()) {
    state->sleep_until = std::min(state->sleep_until, TransportClock::now() + kNapInFlight);
  }
  state->wire_fd = fd.value_or(-1);
  sleeping_.store(true);
  return closings_.empty() ? Round::kSleep : Round::kAgain;
}

void WireTransport::Sleep(const PollState& state) {
  const auto left =
      std::max(state.sleep_until - TransportClock::now(), TransportClock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{seconds.count(), (left - seconds).count()};
  pollfd fds[] = {{wake_fd_, POLLIN, 0}, {state.wire_fd, POLLIN, 0}};  // fd -1 is ignored
  if (ppoll(fds, 2, &timeout, nullptr) <= 0 || fds[0].revents == 0) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(wake_fd_, &count, sizeof count);
}

// REQUIRES: the lock is held.
bool WireTransport::Pump() {
  for (const GrantId grant : closings_.Take()) grants_->Close(grant.value);
  bool moved = wire_->Progress();
  std::vector<std::unique_ptr<Transfer>> ended;
  const auto now = TransportClock::now();
  for (auto& [id, peer] : peers_) {
    uint64_t budget = kPumpBytes;  // each: a busy peer starves no other
    moved |= peer->Pump(now, &budget, &ended);
  }
  Collect(std::move(ended));
  for (const uint64_t grant : grants_->TakeClosed()) closed_.push_back({grant});
  return moved;
}

void WireTransport::Collect(std::vector<std::unique_ptr<Transfer>> ended) {
  for (auto& transfer : ended) {
    for (const Segment& segment : transfer->segments) --regions_.at(segment.local).segments_in_use;
    segments_queued_ -= transfer->segments.size();
    transfers_.erase(transfer->id);
    completions_.push_back({transfer->id, std::move(transfer->end), transfer->issued_bytes});
  }
}

}  // namespace skein::engine
