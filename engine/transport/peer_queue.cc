#include "engine/transport/peer_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Started together: large enough that the cost of a call vanishes, small enough that deadlines and
// other threads get their turn. The bytes are whole messages of UcxWire (16 of 60 KiB).
constexpr uint64_t kBatchBytesMax = 960 << 10;
constexpr size_t kBatchPiecesMax = 512;
// Keeps a socket full; bounds what a cancelled transfer still has to wait for.
constexpr uint32_t kOpsInFlightMax = 512;
constexpr uint64_t kBytesInFlightMax = 8 << 20;

}  // namespace

PeerQueue::~PeerQueue() {
  if (open_) wire_->Close(endpoint_);
}

absl::Status PeerQueue::AddRegions(const Description& description) {
  if (!open_) {
    auto endpoint = wire_->Open(description.worker_address);
    if (!endpoint.ok()) return endpoint.status();
    endpoint_ = *endpoint;
    open_ = true;
    broken_ = absl::OkStatus();
    info_.transport.clear();
    info_.path.clear();
    info_.why_not_faster.clear();
    regions_.clear();  // their keys went with the former endpoint
  }
  for (const DescribedRegion& region : description.regions) {
    const auto known = regions_.find(RegionId{region.id});
    if (known != regions_.end()) {
      if (known->second.described == region) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("transport description: region ", region.id, " changed its place"));
    }
    if (regions_.size() >= kDescriptionRegionsMax) {
      return absl::ResourceExhaustedError("too many regions at one peer");
    }
    auto key = wire_->Import(endpoint_, region);
    if (!key.ok()) return key.status();
    regions_[RegionId{region.id}] = {{region.address, region.bytes}, region, *key};
  }
  return absl::OkStatus();
}

void PeerQueue::AskFor(GrantId grant) {
  if (grant != GrantId{}) wire_->Grants()->Ask(endpoint_, grant.value);
}

const RegionExtent* PeerQueue::FindRegion(RegionId region) const {
  const auto found = regions_.find(region);
  return found == regions_.end() ? nullptr : &found->second.extent;
}

void PeerQueue::Push(std::unique_ptr<Transfer> transfer) {
  SKEIN_CHECK(open_);
  if (queue_.empty()) busy_since_ = TransportClock::now();
  queue_.push_back(std::move(transfer));
}

void PeerQueue::Cancel(TransferId id) {
  for (auto& transfer : queue_) {
    if (transfer->id != id || transfer->given_up) continue;
    transfer->given_up = true;
    transfer->end = absl::CancelledError("transfer cancelled");
  }
}

bool PeerQueue::in_flight() const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [](const auto& transfer) { return transfer->ticket.in_flight > 0; });
}

bool PeerQueue::WindowFull() const {
  uint32_t ops = 0;
  uint64_t bytes = 0;
  for (const auto& transfer : queue_) {
    ops += transfer->ticket.in_flight;
    bytes += transfer->ticket.bytes_in_flight;
    if (transfer->next_segment == 0 && transfer->next_offset == 0) break;  // nor has a later one
  }
  return ops >= kOpsInFlightMax || bytes >= kBytesInFlightMax;
}

void PeerQueue::StartNext(Transfer* transfer, uint64_t* budget) {
  batch_.clear();
  uint64_t left = kBatchBytesMax;
  while (transfer->next_segment < transfer->segments.size() && left > 0 &&
         batch_.size() < kBatchPiecesMax) {
    const Segment& segment = transfer->segments[transfer->next_segment];
    const uint64_t offset = transfer->next_offset;
    const uint64_t bytes = std::min(left, segment.bytes - offset);
    batch_.push_back({segment.local_address + offset, segment.remote_address + offset, bytes,
                      regions_.at(segment.remote).key});
    left -= bytes;
    transfer->next_offset += bytes;
    if (transfer->next_offset == segment.bytes) {
      ++transfer->next_segment;
      transfer->next_offset = 0;
    }
  }
  wire_->Start(endpoint_, transfer->op, batch_, &transfer->ticket);
  const uint64_t bytes = kBatchBytesMax - left;
  *budget -= std::min(*budget, bytes);
  transfer->issued_bytes += bytes;
}

bool PeerQueue::MayPut(const Transfer& transfer) {
  const uint64_t grant = transfer.ticket.grant;
  return grant == 0 || wire_->Grants()->Ask(endpoint_, grant) == WireGrants::Permit::kGiven;
}

// What the target has closed is given up, and acknowledged once nothing of it is under way.
bool PeerQueue::ObeyWithdrawals() {
  bool moved = false;
  for (const uint64_t grant : wire_->Grants()->Withdrawn(endpoint_)) {
    bool under_way = false;
    for (auto& transfer : queue_) {
      if (transfer->ticket.grant != grant) continue;
      if (!transfer->given_up) {
        transfer->given_up = true;
        transfer->end = ClosedGrant();
      }
      under_way |= transfer->ticket.in_flight > 0;
    }
    if (under_way) continue;
    wire_->Grants()->Acknowledge(endpoint_, grant);
    moved = true;
  }
  return moved;
}

bool PeerQueue::Issue(Transfer* transfer, uint64_t* budget) {
  if (!MayPut(*transfer)) return false;
  bool moved = false;
  while (transfer->next_segment < transfer->segments.size() && *budget > 0 &&
         transfer->ticket.error.ok()) {
    // Operations that end at once leave the window as it was: look again only when one stayed.
    if (transfer->ticket.in_flight > 0 || !moved) {
      if (WindowFull()) return moved;
    }
    StartNext(transfer, budget);
    moved = true;
  }
  const bool all_issued = transfer->next_segment == transfer->segments.size();
  if (all_issued && transfer->op == TransferOp::kPut && !transfer->flush_started &&
      transfer->ticket.error.ok()) {
    transfer->flush_started = true;
    wire_->Flush(endpoint_, &transfer->ticket);
    moved = true;
  }
  return moved;
}

bool PeerQueue::Finished(const Transfer& transfer) const {
  if (transfer.ticket.in_flight > 0) return false;
  if (transfer.given_up) return true;
  return transfer.next_segment == transfer.segments.size() &&
         (transfer.op == TransferOp::kGet || transfer.flush_started);
}

// True if the endpoint had to be broken.
bool PeerQueue::ExpireOrBreak(Transfer* transfer, TransportClock::time_point now) {
  if (!transfer->ticket.error.ok() && !transfer->given_up) {
    transfer->given_up = true;
    transfer->end = transfer->ticket.error;
  }
  if (now < transfer->deadline) return false;
  if (!transfer->given_up && !Finished(*transfer)) {
    transfer->given_up = true;
    transfer->end = absl::DeadlineExceededError("transfer timed out");
  }
  if (transfer->ticket.in_flight == 0) return false;
  Break(absl::UnavailableError("peer stalled: operations outlived their transfer's timeout"));
  return true;
}

void PeerQueue::Retire(Transfer* transfer) {
  if (!transfer->given_up) {
    (transfer->op == TransferOp::kPut ? info_.put_bytes : info_.get_bytes) +=
        transfer->issued_bytes;
    const bool staged = wire_->Path(endpoint_) == TransferPath::kHostStaged;
    const char* const path = staged ? "host-staged" : "direct";
    if (info_.transport.empty() || info_.path != path) {
      info_.transport = wire_->TransportName(endpoint_);
      info_.why_not_faster = wire_->WhyNotFaster(endpoint_);
    }
    info_.path = path;
  }
}

bool PeerQueue::Pump(TransportClock::time_point now, uint64_t* budget,
                     std::vector<std::unique_ptr<Transfer>>* ended) {
  if (!broken()) {
    if (auto health = wire_->Health(endpoint_); !health.ok()) Break(health);
  }
  bool moved = !broken() && ObeyWithdrawals();
  if (queue_.empty()) return moved;
  for (auto& transfer : queue_) {
    if (ExpireOrBreak(transfer.get(), now)) moved = true;
    if (!broken() && !transfer->given_up) moved |= Issue(transfer.get(), budget);
  }
  const size_t before = ended->size();
  for (auto& transfer : queue_) {
    if (!Finished(*transfer)) continue;
    if (!transfer->ticket.error.ok() && !transfer->given_up) {
      transfer->given_up = true;
      transfer->end = transfer->ticket.error;
    }
    Retire(transfer.get());
    ended->push_back(std::move(transfer));
  }
  std::erase(queue_, nullptr);
  if (queue_.empty()) {
    info_.busy_seconds +=
        std::chrono::duration<double>(TransportClock::now() - busy_since_).count();
  }
  return moved || ended->size() > before;
}

void PeerQueue::Break(const absl::Status& reason) {
  if (broken()) return;
  broken_ = reason;
  wire_->Close(endpoint_);
  open_ = false;
  for (auto& transfer : queue_) {
    if (transfer->given_up) continue;
    transfer->given_up = true;
    transfer->end = reason;
  }
}

TransportClock::time_point PeerQueue::NextDeadline() const {
  auto next = TransportClock::time_point::max();
  for (const auto& transfer : queue_) next = std::min(next, transfer->deadline);
  return next;
}

PeerInfo PeerQueue::Info(TransportClock::time_point now) const {
  PeerInfo info = info_;
  info.broken = broken();
  if (!queue_.empty())
    info.busy_seconds += std::chrono::duration<double>(now - busy_since_).count();
  return info;
}

}  // namespace skein::engine
