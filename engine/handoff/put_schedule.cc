#include "engine/handoff/put_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr PutSchedule::Time kNever = PutSchedule::Time::max();

}  // namespace

PutSchedule::Handoff* PutSchedule::Find(HandoffKey key) {
  const auto it = handoffs_.find(key);
  return it == handoffs_.end() ? nullptr : &it->second;
}

void PutSchedule::Open(HandoffKey key, std::vector<HandoffBlock> blocks, int64_t prompt_tokens,
                       bool more) {
  Handoff& handoff = handoffs_[key];
  SKEIN_CHECK_MSG(!handoff.granted(), "the key's last handoff has not ended");
  handoff = {.blocks = std::move(blocks), .more = more, .prompt_tokens = prompt_tokens};
  handoff.layers.resize(static_cast<size_t>(num_layers_));
}

void PutSchedule::Add(HandoffKey key, std::span<const HandoffBlock> blocks, bool more) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr) return;
  SKEIN_CHECK_MSG(handoff->more, "the share was complete");
  handoff->blocks.insert(handoff->blocks.end(), blocks.begin(), blocks.end());
  handoff->more = more;
  touched_.insert(key);
}

bool PutSchedule::Written(HandoffKey key, int layer, int64_t token_end) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr) return false;
  int64_t& written = handoff->layers[static_cast<size_t>(layer)].written_tokens;
  written = std::max(written, token_end);
  if (handoff->granted()) touched_.insert(key);
  return handoff->granted();
}

// The last block of the prompt may stay partly filled; every other one is put when it is full.
int64_t PutSchedule::WrittenBlocks(const Handoff& handoff, int layer) const {
  const int64_t written = handoff.layers[static_cast<size_t>(layer)].written_tokens;
  const auto end = std::partition_point(
      handoff.blocks.begin(), handoff.blocks.end(), [&](const HandoffBlock& block) {
        return std::min((block.global + 1) * block_tokens_, handoff.prompt_tokens) <= written;
      });
  return end - handoff.blocks.begin();
}

void PutSchedule::Grant(HandoffKey key, const Terms& terms, Time now) {
  Handoff& handoff = handoffs_.at(key);
  SKEIN_CHECK_MSG(!handoff.granted() && terms.ranks >= 1, "granted twice, or to no rank");
  handoff.phase = Phase::kGranted;
  handoff.terms = terms;
  for (Layer& layer : handoff.layers) {
    layer.posted_blocks.assign(static_cast<size_t>(terms.ranks), 0);
  }
  if (terms.has_buffer) Hold(&handoff, now);
  touched_.insert(key);
}

void PutSchedule::Hold(Handoff* handoff, Time now) {
  handoff->buffer = Handoff::Buffer::kHeld;
  handoff->used = now;
  handoff->free_slots.clear();
  for (int32_t slot = handoff->terms.staging_slots - 1; slot >= 0; --slot) {
    handoff->free_slots.push_back(slot);
  }
}

bool PutSchedule::HasBuffer(HandoffKey key) const {
  const auto it = handoffs_.find(key);
  return it != handoffs_.end() && it->second.buffer == Handoff::Buffer::kHeld;
}

void PutSchedule::Extend(HandoffKey key, Time post_until) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr) return;
  handoff->terms.post_until = std::max(handoff->terms.post_until, post_until);
}

void PutSchedule::UseBuffer(HandoffKey key, Time now) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr || HasBuffer(key)) return;
  Hold(handoff, now);
  touched_.insert(key);
}

void PutSchedule::Taken(HandoffKey key, std::span<const int32_t> slots, const absl::Status& status,
                        Time now) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr) return;
  if (!status.ok()) FailIfLive(handoff, status);
  for (const int32_t slot : slots) {
    const auto part = std::find_if(handoff->untaken.begin(), handoff->untaken.end(),
                                   [slot](const StagedBlock& b) { return b.slot == slot; });
    if (part == handoff->untaken.end()) continue;
    if (status.ok()) handoff->layers[static_cast<size_t>(part->layer)].done_blocks += 1;
    handoff->untaken.erase(part);
    handoff->free_slots.push_back(slot);
    handoff->used = now;
  }
  touched_.insert(key);
}

void PutSchedule::Stop(HandoffKey key) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr || handoff->phase != Phase::kGranted) return;
  handoff->phase = Phase::kStopped;
  CancelFlights(*handoff);
  touched_.insert(key);
}

void PutSchedule::Fail(HandoffKey key, absl::Status status) {
  Handoff* const handoff = Find(key);
  if (handoff == nullptr) return;
  FailIfLive(handoff, std::move(status));
  touched_.insert(key);
}

void PutSchedule::FailIfLive(Handoff* handoff, absl::Status status) {
  if (handoff->phase != Phase::kGranted) return;
  handoff->phase = Phase::kFailed;
  handoff->failure = std::move(status);
}

void PutSchedule::CancelFlights(const Handoff& handoff) {
  work_.cancels.insert(work_.cancels.end(), handoff.flights.begin(), handoff.flights.end());
}

void PutSchedule::Discard(HandoffKey key) {
  const Handoff* const handoff = Find(key);
  if (handoff != nullptr && !handoff->granted()) handoffs_.erase(key);
}

void PutSchedule::PutEnded(uint64_t number, const absl::Status& status, Time now) {
  auto flight = flights_.extract(number);
  SKEIN_CHECK_MSG(!flight.empty(), "the end of a put that was not made");
  const Put& put = flight.mapped();
  Handoff& handoff = handoffs_.at(put.key);
  handoff.flights.erase(number);
  handoff.used = now;
  touched_.insert(put.key);
  if (!status.ok()) {
    if (handoff.phase != Phase::kGranted) return;
    FailIfLive(&handoff, status);
    CancelFlights(handoff);
  } else if (handoff.terms.staging_slots == 0) {
    const auto layer = static_cast<size_t>(put.blocks.front().layer);
    handoff.layers[layer].done_blocks += std::ssize(put.blocks);
  } else if (handoff.phase == Phase::kGranted) {
    Part part{put.key, {}};
    for (const PutBlock& block : put.blocks) {
      part.blocks.push_back({block.slot, block.layer, block.block.global});
    }
    handoff.untaken.insert(handoff.untaken.end(), part.blocks.begin(), part.blocks.end());
    work_.parts.push_back(std::move(part));
  }
}

void PutSchedule::PutRefused(uint64_t number) {
  auto flight = flights_.extract(number);
  SKEIN_CHECK_MSG(!flight.empty(), "a put was refused that was not made");
  const Put& put = flight.mapped();
  Handoff& handoff = handoffs_.at(put.key);
  handoff.flights.erase(number);
  for (auto block = put.blocks.rbegin(); block != put.blocks.rend(); ++block) {
    Layer& layer = handoff.layers[static_cast<size_t>(block->layer)];
    --layer.posted_blocks[static_cast<size_t>(put.rank)];
    if (block->slot >= 0) handoff.free_slots.push_back(block->slot);
  }
  touched_.insert(put.key);
}

// ---- what follows ----

PutSchedule::Work PutSchedule::Take(Time now) {
  for (const HandoffKey key : std::exchange(touched_, {})) {
    Handoff* const handoff = Find(key);
    if (handoff == nullptr) continue;
    PostReady(key, handoff, now);
    ArmIdle(key, handoff);
    EndIfOver(key);
  }
  GiveBackIdle(now);
  return std::exchange(work_, {});
}

bool PutSchedule::HasUnposted(const Handoff& handoff) const {
  for (int layer = 0; layer < num_layers_; ++layer) {
    const int64_t written = WrittenBlocks(handoff, layer);
    for (const int64_t posted : handoff.layers[static_cast<size_t>(layer)].posted_blocks) {
      if (posted < written) return true;
    }
  }
  return false;
}

void PutSchedule::PostReady(HandoffKey key, Handoff* handoff, Time now) {
  if (handoff->phase != Phase::kGranted || !HasUnposted(*handoff)) return;
  if (now >= handoff->terms.post_until) {
    return FailIfLive(handoff, absl::DeadlineExceededError("the grant's lease has expired"));
  }
  if (handoff->terms.staging_slots == 0) {
    for (int layer = 0; layer < num_layers_; ++layer) {
      for (int rank = 0; rank < handoff->terms.ranks; ++rank) PostLayer(key, handoff, layer, rank);
    }
  } else if (handoff->buffer == Handoff::Buffer::kHeld) {
    PostStaged(key, handoff, now);
  } else if (handoff->buffer == Handoff::Buffer::kNone) {
    handoff->buffer = Handoff::Buffer::kAwaited;
    work_.waits.push_back(key);
  }
}

void PutSchedule::PostLayer(HandoffKey key, Handoff* handoff, int layer, int rank) {
  int64_t& posted =
      handoff->layers[static_cast<size_t>(layer)].posted_blocks[static_cast<size_t>(rank)];
  const int64_t last = WrittenBlocks(*handoff, layer);
  if (posted == last) return;
  Put put{.key = key, .rank = rank};
  for (; posted < last; ++posted) {
    put.blocks.push_back({layer, handoff->blocks[static_cast<size_t>(posted)]});
  }
  Post(handoff, std::move(put));
}

// Layers in order, as many blocks as there are free slots.
void PutSchedule::PostStaged(HandoffKey key, Handoff* handoff, Time now) {
  Put put{.key = key};
  for (int layer = 0; layer < num_layers_; ++layer) {
    const int64_t written = WrittenBlocks(*handoff, layer);
    int64_t& posted = handoff->layers[static_cast<size_t>(layer)].posted_blocks[0];
    for (; posted < written && !handoff->free_slots.empty(); ++posted) {
      const int32_t slot = handoff->free_slots.back();
      handoff->free_slots.pop_back();
      put.blocks.push_back({layer, handoff->blocks[static_cast<size_t>(posted)], slot});
    }
  }
  if (put.blocks.empty()) return;
  handoff->used = now;
  Post(handoff, std::move(put));
}

void PutSchedule::Post(Handoff* handoff, Put put) {
  put.number = next_put_++;
  handoff->flights.insert(put.number);
  work_.puts.push_back(put);
  flights_.emplace(put.number, std::move(put));
}

bool PutSchedule::IsOver(const Handoff& handoff) const {
  if (!handoff.granted() || !handoff.flights.empty()) return false;
  if (handoff.phase != Phase::kGranted) return true;
  const int64_t want = std::ssize(handoff.blocks) * handoff.terms.ranks;
  return !handoff.more &&
         std::all_of(handoff.layers.begin(), handoff.layers.end(),
                     [want](const Layer& layer) { return layer.done_blocks == want; });
}

void PutSchedule::EndIfOver(HandoffKey key) {
  const auto it = handoffs_.find(key);
  const Handoff& handoff = it->second;
  if (!IsOver(handoff)) return;
  End end{.key = key, .failure = handoff.failure};
  if (handoff.phase == Phase::kFailed) end.verdict = Verdict::kFailed;
  if (handoff.phase == Phase::kStopped) end.verdict = Verdict::kStopped;
  for (const Layer& layer : handoff.layers) {
    end.blocks.push_back(layer.done_blocks / handoff.terms.ranks);
  }
  work_.ends.push_back(std::move(end));
  ArmIdle(key, nullptr);
  handoffs_.erase(it);
}

// ---- idle buffers ----

PutSchedule::Time PutSchedule::IdleAt(const Handoff& handoff) const {
  const bool unused = handoff.phase == Phase::kGranted &&
                      handoff.buffer == Handoff::Buffer::kHeld && handoff.flights.empty() &&
                      handoff.untaken.empty() && !HasUnposted(handoff);
  if (!unused || handoff.terms.idle_after == std::chrono::nanoseconds::max()) return kNever;
  return handoff.used + handoff.terms.idle_after;
}

// nullptr: it is gone.
void PutSchedule::ArmIdle(HandoffKey key, const Handoff* handoff) {
  if (const auto old = idle_at_.extract(key); !old.empty()) {
    idle_order_.erase({old.mapped(), key});
  }
  const Time at = handoff == nullptr ? kNever : IdleAt(*handoff);
  if (at == kNever) return;
  idle_at_[key] = at;
  idle_order_.emplace(at, key);
}

PutSchedule::Time PutSchedule::NextIdle() const {
  return idle_order_.empty() ? kNever : idle_order_.begin()->first;
}

void PutSchedule::GiveBackIdle(Time now) {
  while (!idle_order_.empty() && idle_order_.begin()->first <= now) {
    const HandoffKey key = idle_order_.begin()->second;
    ArmIdle(key, nullptr);
    Handoff& handoff = handoffs_.at(key);
    handoff.buffer = Handoff::Buffer::kNone;
    handoff.free_slots.clear();
    work_.idle.push_back(key);
  }
}

absl::Status PutSchedule::CheckInvariants() const {
  size_t flights = 0;
  for (const auto& [key, handoff] : handoffs_) {
    flights += handoff.flights.size();
    std::vector<int64_t> under_way(static_cast<size_t>(num_layers_));
    int64_t slots = std::ssize(handoff.free_slots) + std::ssize(handoff.untaken);
    for (const uint64_t number : handoff.flights) {
      const auto flight = flights_.find(number);
      if (flight == flights_.end()) return absl::InternalError("PutSchedule: an unknown flight");
      for (const PutBlock& block : flight->second.blocks) {
        ++under_way[static_cast<size_t>(block.layer)];
        slots += block.slot >= 0 ? 1 : 0;
      }
    }
    if (handoff.buffer == Handoff::Buffer::kHeld && handoff.phase == Phase::kGranted &&
        slots != handoff.terms.staging_slots) {
      return absl::InternalError(
          absl::StrCat("PutSchedule: ", slots, " of ", handoff.terms.staging_slots, " slots"));
    }
    for (const StagedBlock& block : handoff.untaken) ++under_way[static_cast<size_t>(block.layer)];
    for (int layer = 0; layer < num_layers_; ++layer) {
      const Layer& one = handoff.layers[static_cast<size_t>(layer)];
      int64_t posted = 0;
      for (const int64_t at_rank : one.posted_blocks) posted += at_rank;
      if (handoff.phase == Phase::kGranted &&
          posted != one.done_blocks + under_way[static_cast<size_t>(layer)]) {
        return absl::InternalError(absl::StrCat(
            "PutSchedule: ", posted, " blocks of layer ", layer, " put, ", one.done_blocks,
            " done, ", under_way[static_cast<size_t>(layer)], " under way"));
      }
    }
  }
  if (flights != flights_.size()) return absl::InternalError("PutSchedule: a flight of nobody");
  return absl::OkStatus();
}

}  // namespace skein::engine
