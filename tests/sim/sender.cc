#include "tests/sim/sender.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::sim {
namespace {

using engine::HandoffKey;
using engine::PutSchedule;

// A put is refused so often because the transport is full, and made again so much later.
constexpr double kFullChance = 0.02;
constexpr TimeUs kFullUs = 100;

PutSchedule::Time At(TimeUs us) { return PutSchedule::Time(std::chrono::microseconds(us)); }

std::byte* BlockAt(const engine::EmulatedEngine& engine, int layer, scheduler::BlockId block) {
  return static_cast<std::byte*>(engine.KvRegions()[layer].base) +
         block.value * engine.Spec().kv.BlockBytes();
}

}  // namespace

PutSchedule::Time Sender::Now() const { return At(process_->LocalNow()); }

void Sender::Open(const scheduler::OpenHandoff& open) {
  schedule_.Open({open.id, open.epoch}, open.blocks, scheduler::PromptTokens(*open.spec),
                 open.more);
}

void Sender::Add(const scheduler::AddToHandoff& add) {
  schedule_.Add({add.id, add.epoch}, add.blocks, add.more);
  Advance();
}

void Sender::Written(scheduler::RequestId id, scheduler::Epoch epoch, int layer,
                     int64_t token_end) {
  if (schedule_.Written({id, epoch}, layer, token_end)) Advance();
}

void Sender::Start(const scheduler::StartHandoff& start) {
  const HandoffKey key = {start.id, start.epoch};
  const bool staged = start.staging_slots > 0;
  Receiver& receiver = receivers_[key] = {start};
  receiver.memories.push_back(staged ? RemoteMemory{} : find_memory_(start.memory));
  for (const scheduler::TransferTarget& other : start.others) {
    receiver.memories.push_back(find_memory_(other.memory));
  }
  schedule_.Grant(key,
                  {.ranks = static_cast<int>(receiver.memories.size()),
                   .post_until = At(start.post_until_us),
                   .staging_slots = start.staging_slots,
                   .idle_after = std::chrono::microseconds(kIdleUs)},
                  Now());
  Advance();
}

void Sender::Use(const scheduler::UseStagingBuffer& use) {
  const HandoffKey key = {use.id, use.epoch};
  const auto it = receivers_.find(key);
  if (it == receivers_.end() || schedule_.HasBuffer(key)) return;
  it->second.memories.front() = find_memory_(use.memory);
  schedule_.UseBuffer(key, Now());
  Advance();
}

void Sender::Taken(const scheduler::PartTaken& taken) {
  std::vector<int32_t> slots;
  for (const StagedBlock& block : taken.blocks) slots.push_back(block.slot);
  schedule_.Taken({taken.id, taken.epoch}, slots, absl::OkStatus(), Now());
  Advance();
}

void Sender::Extend(const scheduler::ExtendHandoff& extend) {
  schedule_.Extend({extend.id, extend.epoch}, At(extend.post_until_us));
}

void Sender::Stop(const scheduler::StopHandoff& stop) {
  schedule_.Stop({stop.id, stop.epoch});
  Advance();
}

// Cancels are ignored: a put that nobody awaits any more ends in its own time.
void Sender::Advance() {
  PutSchedule::Work work = schedule_.Take(Now());
  for (const Put& put : work.puts) {
    if (network_->random().Chance(kFullChance)) {
      schedule_.PutRefused(put.number);
      process_->After(kFullUs, [this] { Advance(); });
    } else {
      Post(put);
    }
  }
  const absl::Status whole = schedule_.CheckInvariants();
  SKEIN_CHECK_MSG(whole.ok(), std::string(whole.message()).c_str());
  ArmIdle();
  Tell(std::move(work));
}

void Sender::ArmIdle() {
  const PutSchedule::Time idle = schedule_.NextIdle();
  if (idle == PutSchedule::Time::max()) return;
  const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(idle - Now());
  process_->After(std::max<TimeUs>(wait.count(), 0), [this, idle] {
    if (schedule_.NextIdle() <= idle) Advance();
  });
}

void Sender::Tell(PutSchedule::Work work) {
  for (const HandoffKey key : work.waits) ended_(scheduler::HandoffWaits{key.id, key.epoch});
  for (PutSchedule::Part& part : work.parts) {
    ended_(scheduler::HandoffPart{part.key.id, part.key.epoch, std::move(part.blocks)});
  }
  for (const HandoffKey key : work.idle) ended_(scheduler::HandoffIdle{key.id, key.epoch});
  for (const PutSchedule::End& end : work.ends) {
    const scheduler::RequestId id = end.key.id;
    const scheduler::Epoch epoch = end.key.epoch;
    receivers_.erase(end.key);
    if (end.verdict == PutSchedule::Verdict::kStopped) {
      ended_(scheduler::HandoffStopped{id, epoch});
    } else if (end.verdict == PutSchedule::Verdict::kFailed) {
      ended_(scheduler::HandoffFailed{id, epoch, end.failure});
    } else {
      std::vector<int64_t> bytes;
      for (const int64_t blocks : end.blocks) {
        bytes.push_back(blocks * engine_->Spec().kv.BlockBytes());
      }
      ended_(scheduler::HandoffDone{id, epoch, std::move(bytes)});
    }
  }
}

std::vector<Sender::Target> Sender::TargetsOf(const Put& put, const Receiver& receiver) const {
  const engine::KvSpec& kv = engine_->Spec().kv;
  const RemoteMemory& memory = receiver.memories[static_cast<size_t>(put.rank)];
  const std::vector<scheduler::BlockId>& blocks =
      put.rank == 0 ? receiver.start.remote_blocks
                    : receiver.start.others[static_cast<size_t>(put.rank - 1)].blocks;
  const KvLayout layout{static_cast<int32_t>(receiver.memories.size())};
  std::vector<Target> targets;
  for (const PutSchedule::PutBlock& one : put.blocks) {
    Target target{.from = one.block.local, .layer = one.layer};
    if (one.slot < 0) {
      const int64_t block = engine::TargetBlock(kv, layout, one.block.global);
      const scheduler::BlockId to = blocks[static_cast<size_t>(block)];
      target.place = to.value;
      target.to = BlockAt(*memory.engine, one.layer, to);
      target.pieces = engine::MapBlock(kv, layout, put.rank, one.block.global);
    } else {
      target.place = PlaceOfSlot(memory.buffer_index, one.slot);
      target.to = memory.buffer->data() + one.slot * kv.BlockBytes();
      target.pieces = {{0, 0, kv.BlockBytes()}};
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

void Sender::CopyHalf(const engine::EmulatedEngine& engine, const Target& target, bool second) {
  const std::byte* from = BlockAt(engine, target.layer, target.from);
  for (const engine::LayoutPiece& piece : target.pieces) {
    const int64_t half = piece.bytes / 2;
    const int64_t begin = second ? half : 0;
    std::memcpy(target.to + piece.target_offset + begin, from + piece.source_offset + begin,
                static_cast<size_t>(second ? piece.bytes - half : half));
  }
}

// Messages travel even if this process dies meanwhile, or not: a coin decides.
void Sender::Post(const Put& put) {
  const Receiver& receiver = receivers_.at(put.key);
  const RemoteMemory memory = receiver.memories[static_cast<size_t>(put.rank)];
  const std::vector<Target> targets = TargetsOf(put, receiver);
  const Transfers::Grant grant{memory.process->endpoint(), memory.generation, memory.grant};
  const bool stalls = network_->Happens(network_->scenario().stall_chance) ||
                      network_->IsCut(process_->endpoint(), memory.process->endpoint());
  const TimeUs takes = stalls ? kPutTimeoutUs : network_->random().Between(20, 800);
  const bool survives_death = network_->random().Chance(0.5);
  const bool by_itself = network_->random().Chance(0.5);
  if (!transfers_->IsOpen(grant)) {
    process_->After(takes, [this, number = put.number] {
      PutEnded(number, absl::FailedPreconditionError("the target has closed the grant"));
    });
    return;
  }
  const uint64_t generation = process_->generation();
  const uint64_t under_way = transfers_->BeginPut(PutOf(put, targets, grant, by_itself));
  const auto copy = [=, process = process_, engine = engine_, transfers = transfers_](
                        const Target& target, bool second) {
    if (!transfers->Arrives(under_way)) return;
    if (process->generation() != generation && !survives_death) return;
    if (memory.process->generation() != memory.generation) return;
    CopyHalf(*engine, target, second);
  };
  const auto at = [=, process = process_, &time = network_->time()](TimeUs after,
                                                                    std::function<void()> action) {
    time.At(time.now() + after, [=] {
      if (by_itself) {
        process->WhenAwake(action);
      } else {
        action();
      }
    });
  };
  const auto count = static_cast<TimeUs>(targets.size());
  for (TimeUs i = 0; i < count; ++i) {
    const Target target = targets[static_cast<size_t>(i)];
    at(takes * (2 * i + 1) / (2 * count + 1), [=] { copy(target, false); });
    if (stalls) continue;
    at(takes * (2 * i + 2) / (2 * count + 1), [=] { copy(target, true); });
  }
  // A process that starts anew has another Sender: the end is told to this one only.
  at(takes, [=, this, process = process_, transfers = transfers_, number = put.number] {
    const bool arrives = transfers->Arrives(under_way);
    const bool lives = memory.process->generation() == memory.generation;
    transfers->EndPut(under_way);
    if (process->generation() != generation) return;
    const absl::Status status =
        stalls     ? absl::DeadlineExceededError("a put stalled")
        : !lives   ? absl::UnavailableError("the decode instance is dead")
        : !arrives ? absl::FailedPreconditionError("the target has closed the grant")
                   : absl::OkStatus();
    process->WhenAwake([=, this] { PutEnded(number, status); });
  });
}

Transfers::Put Sender::PutOf(const Put& put, const std::vector<Target>& targets,
                             const Transfers::Grant& grant, bool by_itself) const {
  const bool staged = receivers_.at(put.key).start.staging_slots > 0;
  const scheduler::RequestId id = put.key.id;
  const scheduler::Epoch epoch = put.key.epoch;
  Transfers::Put made{.grant = grant,
                      .source = process_->endpoint(),
                      .source_generation = process_->generation(),
                      .by_itself = by_itself,
                      .reader = {id, epoch},
                      .writer = {id, epoch, staged ? process_->endpoint() : ""}};
  for (const Target& target : targets) {
    made.from.push_back({made.source, made.source_generation, target.from.value});
    made.to.push_back({grant.endpoint, grant.generation, target.place});
  }
  return made;
}

void Sender::PutEnded(uint64_t number, const absl::Status& status) {
  schedule_.PutEnded(number, status, Now());
  Advance();
}

}  // namespace skein::sim
