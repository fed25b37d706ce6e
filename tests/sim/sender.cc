#include "tests/sim/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "scheduler/base/plant.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

std::byte* BlockAt(const engine::EmulatedEngine& engine, int layer, scheduler::BlockId block) {
  return static_cast<std::byte*>(engine.KvRegions()[layer].base) +
         block.value * engine.Spec().kv.BlockBytes();
}

}  // namespace

void Sender::Open(const scheduler::OpenHandoff& open) {
  shares_[{open.id, open.epoch}] = {
      .prompt_tokens = scheduler::PromptTokens(*open.spec),
      .blocks = open.blocks,
      .more = open.more,
      .written = std::vector<int64_t>(static_cast<size_t>(engine_->Spec().kv.num_layers))};
}

void Sender::Add(const scheduler::AddToHandoff& add) {
  const auto it = shares_.find({add.id, add.epoch});
  if (it == shares_.end()) return;
  it->second.blocks.insert(it->second.blocks.end(), add.blocks.begin(), add.blocks.end());
  it->second.more = add.more;
  Pump({add.id, add.epoch});
}

void Sender::Written(scheduler::RequestId id, scheduler::Epoch epoch, int layer,
                     int64_t token_end) {
  const auto it = shares_.find({id, epoch});
  if (it == shares_.end()) return;
  it->second.written[layer] = token_end;
  Pump({id, epoch});
}

void Sender::Start(const scheduler::StartHandoff& start) {
  const Key key{start.id, start.epoch};
  Handoff& handoff = handoffs_[key];
  handoff.start = start;
  handoff.next_block.assign(engine_->Spec().kv.num_layers, 0);
  handoff.bytes.assign(engine_->Spec().kv.num_layers, 0);
  Pump(key);
}

void Sender::Use(const scheduler::UseBackend& use) {
  const Key key{use.id, use.epoch};
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end() || it->second.has_buffer) return;
  Handoff& handoff = it->second;
  handoff.buffer = find_memory_(use.memory);
  handoff.has_buffer = true;
  handoff.waits = false;
  handoff.free_slots.clear();
  for (int32_t slot = 0; slot < handoff.start.staging_slots; ++slot) {
    handoff.free_slots.push_back(slot);
  }
  Touch(key, handoff);
  Pump(key);
}

void Sender::Taken(const scheduler::PartTaken& taken) {
  const Key key{taken.id, taken.epoch};
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end()) return;
  Handoff& handoff = it->second;
  for (const scheduler::StagedBlock& block : taken.blocks) {
    handoff.bytes[block.layer] += engine_->Spec().kv.BlockBytes();
    handoff.free_slots.push_back(block.slot);
    --handoff.untaken;
  }
  Touch(key, handoff);
  Pump(key);
}

void Sender::Touch(const Key& key, Handoff& handoff) {
  const uint64_t uses = ++handoff.uses;
  process_->After(kIdleUs, [this, key, uses] {
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end()) return;
    Handoff& handoff = it->second;
    const bool idle = handoff.has_buffer && handoff.uses == uses && handoff.under_way == 0 &&
                      handoff.untaken == 0 && !handoff.stopping && handoff.failure.ok() &&
                      !HasAnything(key, handoff);
    if (!idle) return;
    handoff.has_buffer = false;
    ended_(scheduler::HandoffIdle{key.first, key.second});
  });
}

void Sender::Extend(const scheduler::ExtendHandoff& extend) {
  const auto it = handoffs_.find({extend.id, extend.epoch});
  if (it != handoffs_.end()) it->second.start.post_until_us = extend.post_until_us;
}

void Sender::Stop(const scheduler::StopHandoff& stop) {
  const Key key{stop.id, stop.epoch};
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end()) return;  // its end is on its way
  it->second.stopping = true;
  MaybeEnd(key);
}

bool Sender::HasNext(const Key& key, const Handoff& handoff, int layer) const {
  const Share& share = shares_.at(key);
  const size_t next = handoff.next_block[layer];
  if (next >= share.blocks.size()) return false;
  const int64_t block_end = (share.blocks[next].global + 1) * engine_->Spec().kv.block_tokens;
  return share.written[layer] >= std::min(share.prompt_tokens, block_end);
}

bool Sender::HasAnything(const Key& key, const Handoff& handoff) const {
  for (int layer = 0; layer < engine_->Spec().kv.num_layers; ++layer) {
    if (HasNext(key, handoff, layer)) return true;
  }
  return false;
}

void Sender::Pump(const Key& key) {
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end()) return;
  Handoff& handoff = it->second;
  const bool staged = handoff.start.staging_slots > 0;
  for (int layer = 0; layer < engine_->Spec().kv.num_layers; ++layer) {
    while (!handoff.stopping && handoff.failure.ok() && HasNext(key, handoff, layer)) {
      if (process_->LocalNow() > handoff.start.post_until_us) {
        handoff.failure = absl::UnavailableError("the lease ended before a put");
        break;
      }
      if (staged && !handoff.has_buffer) {
        if (!std::exchange(handoff.waits, true))
          ended_(scheduler::HandoffWaits{key.first, key.second});
        return;
      }
      if (staged && handoff.free_slots.empty()) return;
      Post(key, handoff, NextPut(key, handoff, layer));
    }
  }
  MaybeEnd(key);
}

Sender::Put Sender::NextPut(const Key& key, Handoff& handoff, int layer) {
  const scheduler::PutBlock& block = shares_.at(key).blocks[handoff.next_block[layer]++];
  Put put{.layer = layer, .from = block.local};
  if (handoff.start.staging_slots == 0) {
    const scheduler::BlockId to = handoff.start.remote_blocks[block.global];
    put.memory = find_memory_(handoff.start.memory);
    put.place = to.value;
    put.to = BlockAt(*put.memory.engine, layer, to);
    return put;
  }
  const int32_t slot = handoff.free_slots.back();
  handoff.free_slots.pop_back();
  put.memory = handoff.buffer;
  put.place = PlaceOfSlot(put.memory.backend, slot);
  put.to = put.memory.buffer->data() + slot * engine_->Spec().kv.BlockBytes();
  put.staged = {slot, layer, block.global};
  return put;
}

// The bytes travel even if this process dies meanwhile, or not: a coin decides.
void Sender::Post(const Key& key, Handoff& handoff, const Put& put) {
  const RemoteMemory& memory = put.memory;
  const bool staged = memory.buffer != nullptr;
  const Transfers::Owner owner{key.first, key.second};
  const Transfers::Owner writer{key.first, key.second, staged ? process_->endpoint() : ""};
  const Transfers::Place source{process_->endpoint(), process_->generation(), put.from.value};
  const Transfers::Place target{memory.process->endpoint(), memory.generation, put.place};
  const bool stalls = network_->Happens(network_->scenario().stall_chance) ||
                      network_->IsCut(process_->endpoint(), memory.process->endpoint());
  const TimeUs takes = stalls ? kPutTimeoutUs : network_->random().Between(20, 800);
  const bool survives_death = network_->random().Chance(0.5);
  ++handoff.under_way;
  transfers_->Begin(source, owner);
  transfers_->Begin(target, writer);
  const uint64_t generation = process_->generation();
  const int64_t bytes = engine_->Spec().kv.BlockBytes();
  const auto copy = [=, process = process_, engine = engine_](int64_t begin, int64_t end) {
    if (process->generation() != generation && !survives_death) return;
    if (put.memory.process->generation() != put.memory.generation) return;
    // Planted: V before K.
    const int64_t to = SKEIN_PLANT(block_of_the_wrong_layout) ? (begin + bytes / 2) % bytes : begin;
    std::memcpy(put.to + to, BlockAt(*engine, put.layer, put.from) + begin, end - begin);
  };
  VirtualTime& time = network_->time();
  time.At(time.now() + takes / 2, [=] { copy(0, bytes / 2); });
  // A process that starts anew has another Sender: the end is told to this one only.
  time.At(time.now() + takes, [=, this, self = this, process = process_, transfers = transfers_] {
    const bool arrives = put.memory.process->generation() == put.memory.generation;
    if (!stalls) copy(bytes / 2, bytes);
    transfers->End(source, owner);
    transfers->End(target, writer);
    if (process->generation() != generation) return;
    const absl::Status status = stalls     ? absl::DeadlineExceededError("a put stalled")
                                : !arrives ? absl::UnavailableError("the decode instance is dead")
                                           : absl::OkStatus();
    process->WhenAwake([=] { self->Completed(key, put, status); });
  });
}

void Sender::Completed(const Key& key, const Put& put, absl::Status status) {
  Handoff& handoff = handoffs_.at(key);
  --handoff.under_way;
  if (!status.ok()) {
    if (handoff.failure.ok()) handoff.failure = std::move(status);
  } else if (put.memory.buffer == nullptr) {
    handoff.bytes[put.layer] += engine_->Spec().kv.BlockBytes();
  } else if (!handoff.stopping && handoff.failure.ok()) {
    ++handoff.untaken;
    ended_(scheduler::HandoffPart{key.first, key.second, {put.staged}});
  }
  MaybeEnd(key);
}

void Sender::MaybeEnd(const Key& key) {
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end() || it->second.under_way > 0) return;
  Handoff& handoff = it->second;
  const auto [id, epoch] = key;
  const Share& share = shares_.at(key);
  const int64_t all = static_cast<int64_t>(share.blocks.size()) * engine_->Spec().kv.BlockBytes();
  const bool done = !share.more && std::all_of(handoff.bytes.begin(), handoff.bytes.end(),
                                               [all](int64_t bytes) { return bytes == all; });
  if (done) {
    ended_(scheduler::HandoffDone{id, epoch, handoff.bytes});
  } else if (!handoff.failure.ok()) {
    ended_(scheduler::HandoffFailed{id, epoch, handoff.failure});
  } else if (handoff.stopping) {
    ended_(scheduler::HandoffStopped{id, epoch});
  } else {
    return;
  }
  handoffs_.erase(key);
  shares_.erase(key);
}

}  // namespace skein::sim
