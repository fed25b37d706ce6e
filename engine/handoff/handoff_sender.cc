#include "engine/handoff/handoff_sender.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/handoff/layout_map.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Ascending, and all of them blocks of the prompt.
bool IsShare(std::span<const HandoffBlock> blocks, int64_t prompt_blocks) {
  int64_t next = 0;
  for (const HandoffBlock& block : blocks) {
    if (block.global < next) return false;
    next = block.global + 1;
  }
  return next <= prompt_blocks;
}

}  // namespace

HandoffSender::HandoffSender(Transport* transport, const KvSpec& spec,
                             std::vector<RegionId> local_regions,
                             std::chrono::nanoseconds put_timeout, HandoffEnds ends,
                             size_t peers_max)
    : transport_(transport),
      spec_(spec),
      local_regions_(std::move(local_regions)),
      put_timeout_(put_timeout),
      ends_(std::move(ends)),
      schedule_(spec.num_layers, spec.block_tokens),
      peers_(transport, peers_max) {
  SKEIN_CHECK(static_cast<int>(local_regions_.size()) == spec_.num_layers);
}

void HandoffSender::Open(HandoffKey key, std::vector<HandoffBlock> blocks, int64_t prompt_tokens,
                         bool more) {
  SKEIN_CHECK(IsShare(blocks, BlocksOfLayout(spec_, {1}, prompt_tokens)));
  std::lock_guard lock(mu_);
  schedule_.Open(key, std::move(blocks), prompt_tokens, more);
}

void HandoffSender::Add(HandoffKey key, std::span<const HandoffBlock> blocks, bool more) {
  {
    std::lock_guard lock(mu_);
    schedule_.Add(key, blocks, more);
  }
  transport_->Wake();
}

void HandoffSender::Written(HandoffKey key, int layer, int64_t token_end) {
  {
    std::lock_guard lock(mu_);
    if (!schedule_.Written(key, layer, token_end)) return;
  }
  if (WakesFor(layer) && pumps_ != std::this_thread::get_id()) transport_->Wake();
}

// The engine waits for each wake-up, and for the puts' lock.
bool HandoffSender::WakesFor(int layer) const {
  const int64_t layers =
      std::max<int64_t>(1, kWakeBytes / std::max<int64_t>(1, spec_.BlockBytes()));
  return (layer + 1) % layers == 0 || layer + 1 == spec_.num_layers;
}

void HandoffSender::Grant(HandoffKey key, HandoffGrant grant) {
  {
    std::lock_guard lock(mu_);
    SKEIN_CHECK_MSG(schedule_.IsOpen(key), "granted before it was opened");
    Receiver& receiver = receivers_[key];
    receiver.grant = std::move(grant);
    const HandoffGrant& terms = receiver.grant;
    const bool staged = terms.staging_slots > 0;
    schedule_.Grant(key,
                    {.ranks = staged ? 1 : std::max(1, static_cast<int>(terms.targets.size())),
                     .post_until = terms.post_until,
                     .staging_slots = terms.staging_slots,
                     .has_buffer = staged && !terms.targets.empty(),
                     .idle_after = terms.idle_after},
                    PutSchedule::Time::clock::now());
    absl::Status status = CheckGrant(terms, schedule_.PromptTokens(key));
    if (status.ok()) status = Connect(&receiver);
    if (!status.ok()) schedule_.Fail(key, std::move(status));
  }
  transport_->Wake();
}

absl::Status HandoffSender::CheckGrant(const HandoffGrant& grant, int64_t prompt_tokens) const {
  const KvLayout layout{static_cast<int>(grant.targets.size())};
  if (grant.staging_slots > 0) {
    if (layout.tp > 1)
      return absl::FailedPreconditionError(
          absl::StrCat("layout: staging buffers take tp = 1, the grant has tp = ", layout.tp));
    const bool comes = ends_.waits != nullptr && ends_.idle != nullptr;
    if (layout.tp == 0 && !comes)
      return absl::FailedPreconditionError("staging: the grant names no buffer");
    if (ends_.part == nullptr)
      return absl::FailedPreconditionError(
          "staging: this instance does not put into staging buffers");
    return absl::OkStatus();
  }
  if (absl::Status status = CheckLayout(spec_, layout); !status.ok()) return status;
  const int64_t need = BlocksOfLayout(spec_, layout, prompt_tokens);
  for (const HandoffTarget& target : grant.targets) {
    if (static_cast<int64_t>(target.blocks.size()) == need) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("blocks: granted ", target.blocks.size(), ", need ", need));
  }
  return absl::OkStatus();
}

absl::Status HandoffSender::Connect(Receiver* receiver) {
  for (const HandoffTarget& target : receiver->grant.targets) {
    if (absl::Status status = ConnectTo(target.memory, receiver); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HandoffSender::ConnectTo(const std::string& memory, Receiver* receiver) {
  absl::StatusOr<Peer> peer = peers_.Acquire(memory, receiver->grant.peer);
  if (!peer.ok()) return peer.status();
  const size_t granted = peer->regions.size();
  const size_t need = receiver->grant.staging_slots > 0 ? 1 : local_regions_.size();
  receiver->peers.push_back(*std::move(peer));
  if (granted == need) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("layers: granted memory has ", granted, " regions, need ", need));
}

void HandoffSender::ReleasePeers(Receiver* receiver) {
  for (const Peer& peer : receiver->peers) peers_.Release(peer.id);
  receiver->peers.clear();
}

void HandoffSender::Extend(HandoffKey key, std::chrono::steady_clock::time_point post_until) {
  std::lock_guard lock(mu_);
  schedule_.Extend(key, post_until);
}

void HandoffSender::UseBuffer(HandoffKey key, const std::string& memory) {
  {
    std::lock_guard lock(mu_);
    const auto it = receivers_.find(key);
    if (it == receivers_.end() || schedule_.HasBuffer(key)) return;
    ReleasePeers(&it->second);
    absl::Status status = ConnectTo(memory, &it->second);
    if (status.ok()) {
      schedule_.UseBuffer(key, PutSchedule::Time::clock::now());
    } else {
      schedule_.Fail(key, std::move(status));
    }
  }
  transport_->Wake();
}

void HandoffSender::Taken(HandoffKey key, std::span<const int32_t> slots,
                          const absl::Status& status) {
  {
    std::lock_guard lock(mu_);
    schedule_.Taken(key, slots, status, PutSchedule::Time::clock::now());
  }
  transport_->Wake();
}

void HandoffSender::Stop(HandoffKey key) {
  {
    std::lock_guard lock(mu_);
    schedule_.Stop(key);
  }
  transport_->Wake();
}

void HandoffSender::Discard(HandoffKey key) {
  std::lock_guard lock(mu_);
  schedule_.Discard(key);
}

std::vector<TransferPiece> HandoffSender::PiecesOf(const PutSchedule::Put& put,
                                                   const Receiver& receiver) const {
  const int64_t block_bytes = spec_.BlockBytes();
  const KvLayout layout{static_cast<int>(receiver.peers.size())};
  const auto rank = static_cast<size_t>(put.rank);
  std::vector<TransferPiece> pieces;
  for (const PutSchedule::PutBlock& one : put.blocks) {
    const auto layer = static_cast<size_t>(one.layer);
    const auto from = static_cast<uint64_t>(one.block.local.value * block_bytes);
    if (one.slot >= 0) {
      pieces.push_back({.local = local_regions_[layer],
                        .local_offset = from,
                        .remote = receiver.peers[0].regions[0],
                        .remote_offset = static_cast<uint64_t>(one.slot * block_bytes),
                        .bytes = static_cast<uint64_t>(block_bytes)});
      continue;
    }
    const auto target = static_cast<size_t>(TargetBlock(spec_, layout, one.block.global));
    const auto to =
        static_cast<uint64_t>(receiver.grant.targets[rank].blocks[target].value * block_bytes);
    for (const LayoutPiece& piece : MapBlock(spec_, layout, put.rank, one.block.global)) {
      pieces.push_back({.local = local_regions_[layer],
                        .local_offset = from + static_cast<uint64_t>(piece.source_offset),
                        .remote = receiver.peers[rank].regions[layer],
                        .remote_offset = to + static_cast<uint64_t>(piece.target_offset),
                        .bytes = static_cast<uint64_t>(piece.bytes)});
    }
  }
  return pieces;
}

bool HandoffSender::Carry(const PutSchedule::Work& work) {
  for (const uint64_t number : work.cancels) {
    const auto transfer = transfers_.find(number);
    if (transfer != transfers_.end()) transport_->Cancel(transfer->second);
  }
  std::set<HandoffKey> failed;
  for (const PutSchedule::Put& put : work.puts) {
    if (failed.count(put.key) > 0) {
      schedule_.PutRefused(put.number);
      continue;
    }
    const Receiver& receiver = receivers_.at(put.key);
    const Peer& peer = receiver.peers[static_cast<size_t>(put.rank)];
    const absl::StatusOr<TransferId> id = transport_->PostUnder(
        peer.grant, peer.id, TransferOp::kPut, PiecesOf(put, receiver), put_timeout_);
    if (id.ok()) {
      puts_[*id] = put.number;
      transfers_[put.number] = *id;
      continue;
    }
    schedule_.PutRefused(put.number);
    if (absl::IsResourceExhausted(id.status())) continue;  // the transport is full for now
    schedule_.Fail(put.key, id.status());
    failed.insert(put.key);
  }
  for (const PutSchedule::End& end : work.ends) {
    const auto it = receivers_.find(end.key);
    const bool done = end.verdict == PutSchedule::Verdict::kDone;
    if (done && ends_.carried != nullptr) carried_[end.key] = SlowestOf(it->second);
    ReleasePeers(&it->second);
    receivers_.erase(it);
  }
  return failed.empty();
}

PeerInfo HandoffSender::SlowestOf(const Receiver& receiver) const {
  PeerInfo slowest;
  for (const Peer& peer : receiver.peers) {
    const absl::StatusOr<PeerInfo> info = transport_->Inspect(peer.id);
    const bool first = slowest.path.empty();
    if (info.ok() && (first || info->path == "host-staged")) slowest = *info;
  }
  return slowest;
}

void HandoffSender::Pump(std::chrono::nanoseconds wait) {
  using Clock = PutSchedule::Time::clock;
  pumps_ = std::this_thread::get_id();
  PutSchedule::Work before;
  {
    std::lock_guard lock(mu_);
    const PutSchedule::Time now = Clock::now();
    before = schedule_.Take(now);
    // A handoff that has nothing under way ends now, not after the wait.
    if (!Carry(before) || !before.Silent()) wait = {};
    const PutSchedule::Time idle = schedule_.NextIdle();
    if (idle != PutSchedule::Time::max()) {
      wait = std::clamp<std::chrono::nanoseconds>(idle - now, {}, wait);
    }
  }
  std::vector<TransferCompletion> completions;
  transport_->Poll(64, wait, &completions);
  PutSchedule::Work after;
  {
    std::lock_guard lock(mu_);
    const PutSchedule::Time now = Clock::now();
    for (const TransferCompletion& completion : completions) {
      auto put = puts_.extract(completion.id);
      SKEIN_CHECK_MSG(!put.empty(), "a completion of a transfer that was not posted");
      transfers_.erase(put.mapped());
      schedule_.PutEnded(put.mapped(), completion.status, now);
    }
    after = schedule_.Take(now);
    Carry(after);
  }
  Tell(&before);
  Tell(&after);
}

void HandoffSender::Tell(PutSchedule::Work* work) {
  for (const HandoffKey key : work->waits) ends_.waits(key);
  for (PutSchedule::Part& part : work->parts) ends_.part(part.key, std::move(part.blocks));
  for (const HandoffKey key : work->idle) ends_.idle(key);
  for (PutSchedule::End& end : work->ends) {
    if (end.verdict == PutSchedule::Verdict::kStopped) {
      ends_.stopped(end.key);
    } else if (end.verdict == PutSchedule::Verdict::kFailed) {
      ends_.failed(end.key, std::move(end.failure));
    } else {
      std::vector<int64_t> bytes;
      for (const int64_t blocks : end.blocks) bytes.push_back(blocks * spec_.BlockBytes());
      if (const auto carried = carried_.extract(end.key); !carried.empty()) {
        ends_.carried(end.key, carried.mapped());
      }
      ends_.done(end.key, std::move(bytes));
    }
  }
}

void HandoffSender::DropGonePeers() {
  std::lock_guard lock(mu_);
  peers_.DropBroken();
}

std::vector<HandoffTotals> HandoffSender::Totals() const {
  std::lock_guard lock(mu_);
  return peers_.Totals();
}

}  // namespace skein::engine
