#include "scheduler/worker/kv_in/kv_in.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// The writer is at fault, not the request: another one may compute it.
absl::Status OfWriter(const absl::Status& why) {
  return absl::UnavailableError(
      absl::StrCat("a prefill instance sent an invalid Commit: ", std::string(why.message())));
}

}  // namespace

KvIn::KvIn(KvInConfig config, std::function<Gone(RequestId, Epoch)> why_gone,
           std::function<void(KvInEffect)> emit)
    : config_(std::move(config)),
      why_gone_(std::move(why_gone)),
      emit_(std::move(emit)),
      pool_(config_.total_blocks),
      quarantine_(&pool_, [this](GrantId grant) { emit_(CloseGrant{grant}); }),
      coming_(&pool_, &quarantine_, [this] { return NewGrant(); }) {
  if (config_.staging.memory.empty()) return;
  loans_.emplace(
      config_.staging, config_.lease_us, [this] { return NewGrant(); }, emit_);
}

KvIn::Entry* KvIn::FindComing(RequestId id, Epoch epoch) {
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.epoch != epoch) return nullptr;
  return it->second.Coming() ? &it->second : nullptr;
}

KvIn::Gone KvIn::WhyGone(RequestId id, Epoch epoch) const {
  const auto it = entries_.find(id);
  if (it != entries_.end() && it->second.epoch == epoch && it->second.phase == Phase::kWhole) {
    return {absl::FailedPreconditionError("the request is already committed"), true};
  }
  return why_gone_(id, epoch);
}

void KvIn::SetPhase(Entry& entry, Phase phase) {
  counts_.reserved += (phase == Phase::kReserved) - (entry.phase == Phase::kReserved);
  counts_.granted += (phase == Phase::kGranted) - (entry.phase == Phase::kGranted);
  entry.phase = phase;
}

KvIn::Counts KvIn::CountSequences() const {
  Counts counts = counts_;
  counts.quarantined = static_cast<int64_t>(quarantine_.size());
  return counts;
}

absl::Status KvIn::ExtendTo(Entry& entry, int64_t blocks) {
  absl::StatusOr<BlockTable> table = pool_.Extend(entry.blocks, blocks);
  if (!table.ok()) return table.status();
  entry.blocks = *std::move(table);
  return absl::OkStatus();
}

absl::Status KvIn::Extend(RequestId id, int64_t tokens) {
  return ExtendTo(entries_.at(id), BlocksFor(tokens));
}

absl::Status KvIn::Reserve(const SpecPtr& spec, Epoch epoch,
                           const std::vector<Incarnation>& writers, TimeUs now) {
  SKEIN_CHECK(!Has(spec->id));
  Entry entry{.spec = spec, .epoch = epoch, .layout = config_.shape.layout};
  absl::Status status = ExtendTo(entry, BlocksFor(OpeningTokens(*spec)));
  if (!status.ok()) return status;
  entry.named.insert(writers.begin(), writers.end());
  entry.lease_end_us = now + config_.lease_us;
  ++counts_.reserved;
  Arm(entries_.emplace(spec->id, std::move(entry)).first->second);
  return absl::OkStatus();
}

absl::Status KvIn::Resume(const SpecPtr& spec, Epoch epoch, int64_t tokens) {
  SKEIN_CHECK(!Has(spec->id));
  Entry entry{.spec = spec, .epoch = epoch, .phase = Phase::kWhole, .layout = config_.shape.layout};
  absl::Status status = ExtendTo(entry, BlocksFor(tokens));
  if (status.ok()) entries_.emplace(spec->id, std::move(entry));
  return status;
}

absl::Status KvIn::Share(RequestId from, int64_t shared, const SpecPtr& spec, Epoch epoch) {
  SKEIN_CHECK(!Has(spec->id));
  const Entry& source = entries_.at(from);
  SKEIN_CHECK(source.phase == Phase::kWhole);
  const absl::StatusOr<BlockTable> own = pool_.Allocate(BlocksFor(OpeningTokens(*spec)) - shared);
  if (!own.ok()) return own.status();
  std::vector<BlockId> blocks(source.blocks->begin(), source.blocks->begin() + shared);
  pool_.Share(blocks);
  blocks.insert(blocks.end(), (*own)->begin(), (*own)->end());
  Entry entry{.spec = spec, .epoch = epoch, .phase = Phase::kWhole, .layout = config_.shape.layout};
  entry.blocks = std::make_shared<const std::vector<BlockId>>(std::move(blocks));
  entries_.emplace(spec->id, std::move(entry));
  return absl::OkStatus();
}

void KvIn::AddWriters(RequestId id, const std::vector<Incarnation>& writers) {
  entries_.at(id).named.insert(writers.begin(), writers.end());
}

bool KvIn::MayBeWritten(const Entry& entry) const {
  if (loans_.has_value()) return entry.copies > 0;
  if (entry.grant == GrantId{}) return false;
  return entry.aborted || std::any_of(entry.writers.begin(), entry.writers.end(),
                                      [](const auto& writer) { return writer.second.Writes(); });
}

void KvIn::CloseGrantOf(const Entry& entry) {
  quarantine_.Close({entry.spec->id, entry.epoch}, entry.grant);
}

void KvIn::Release(RequestId id, TimeUs now) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  Entry entry = std::move(it->second);
  SetPhase(entry, Phase::kFailed);
  entries_.erase(it);
  leases_.Remove(id);
  EndLoansOf(entry, now);
  CloseGrantOf(entry);
  if (!MayBeWritten(entry) || SKEIN_PLANT(quarantine_freed_early)) {
    pool_.Free(*entry.blocks);
    freed_ = true;
    return;
  }
  quarantine_.Add({id, entry.epoch}, std::move(entry.blocks), entry.grant, entry.copies);
}

// ---- writers ----

void KvIn::On(const OpenTransferCalled& event, TimeUs now) {
  OpenTransferReply reply = Grant(event.request, now);
  const bool one_sided = reply.status.ok() && !loans_.has_value();
  const GrantId grant = one_sided ? entries_.at(event.request.id).grant : GrantId{};
  emit_(AnswerOpenTransfer{event.call, std::move(reply), grant});
}

OpenTransferReply KvIn::Grant(const OpenTransferRequest& request, TimeUs now) {
  const auto refuse = [](absl::Status status) {
    return OpenTransferReply{.status = std::move(status)};
  };
  absl::Status same = CheckSameShape(request.shape, config_.shape);
  if (!same.ok()) return refuse(std::move(same));
  Entry* entry = FindComing(request.id, request.epoch);
  if (entry == nullptr) return refuse(WhyGone(request.id, request.epoch).status);
  if (entry->named.count(request.incarnation) == 0) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("prefill_instance: ", request.prefill.value,
                     " is not among the writers that the reservation names")));
  }
  Writer& writer = entry->writers[request.prefill];
  if (!writer.Writes()) {  // a duplicate of its OpenTransfer
    return refuse(absl::FailedPreconditionError("the writer has already committed"));
  }
  SetPhase(*entry, Phase::kGranted);
  entry->lease_end_us = writer.lease_end_us = now + config_.lease_us;
  Arm(*entry);
  if (loans_.has_value()) {
    return {.layout = config_.shape.layout,
            .lease_us = config_.lease_us,
            .staging_slots = config_.staging.slots};
  }
  if (entry->grant == GrantId{}) entry->grant = NewGrant();
  const auto blocks = entry->blocks->begin();
  return {.blocks = {blocks, blocks + PromptBlocks(*entry)},
          .layout = entry->layout,
          .memory = config_.memory,
          .lease_us = config_.lease_us,
          .others = entry->others};
}

void KvIn::On(const RenewCalled& event, TimeUs now) {
  emit_(AnswerRenew{event.call, {Renew(event.request, now), config_.lease_us}});
}

absl::Status KvIn::Renew(const RenewRequest& request, TimeUs now) {
  const auto it = entries_.find(request.id);
  const bool here = it != entries_.end() && it->second.epoch == request.epoch &&
                    it->second.phase != Phase::kFailed;
  const bool resumed = here && it->second.phase == Phase::kWhole && it->second.writers.empty();
  if (!here || resumed) {
    Gone gone = WhyGone(request.id, request.epoch);
    const bool may_write = quarantine_.Has({request.id, request.epoch});
    return gone.committed && !may_write ? absl::OkStatus() : gone.status;
  }
  Entry& entry = it->second;
  const auto writer = entry.writers.find(request.prefill);
  if (writer == entry.writers.end()) {
    return absl::FailedPreconditionError("no transfer is open for this writer");
  }
  entry.lease_end_us = writer->second.lease_end_us = now + config_.lease_us;
  Arm(entry);
  if (loans_.has_value()) loans_->Renew({request.id, request.epoch, request.prefill}, now);
  return absl::OkStatus();
}

void KvIn::On(const CommitCalled& event, TimeUs now) {
  emit_(AnswerCommit{event.call, {Commit(event.request, now)}});
}

absl::Status KvIn::Commit(const CommitRequest& request, TimeUs now) {
  EndLoanOf({request.id, request.epoch, request.prefill}, now);
  Entry* entry = FindComing(request.id, request.epoch);
  if (entry == nullptr) {
    Gone gone = WhyGone(request.id, request.epoch);
    return gone.committed ? absl::OkStatus() : gone.status;
  }
  const auto it = entry->writers.find(request.prefill);
  if (it == entry->writers.end()) {
    return absl::FailedPreconditionError("no transfer is open for this writer");
  }
  Writer& writer = it->second;
  if (!writer.Writes()) return absl::OkStatus();  // duplicate, while others write
  const bool telling = writer.phase == WriterPhase::kTellingPart;
  writer.phase = WriterPhase::kCommitted;  // whatever becomes of it, it writes no more
  entry->lease_end_us = now + config_.lease_us;
  absl::Status status =
      telling ? absl::InvalidArgumentError("commit: a staged part is still being copied")
              : TakeCommit(*entry, request);
  if (!status.ok() || IsWhole(*entry)) {
    Finish(*entry, status.ok() ? status : OfWriter(status), now);
  } else {
    Arm(*entry);
  }
  return status;
}

absl::Status KvIn::TakeCommit(Entry& entry, const CommitRequest& request) const {
  absl::Status status = AddBytes(entry, request.bytes_per_layer);
  if (!status.ok()) return status;
  Result& result = entry.result;
  if (!request.prompt_logprobs.empty()) result.prompt_logprobs = request.prompt_logprobs;
  AddTimes(result, request.times);
  const bool wanted = entry.spec->max_tokens > 0;
  if (request.has_token && (result.has_token || !wanted)) {
    return absl::InvalidArgumentError("first token: sent twice, or although max_tokens is 0");
  }
  if (request.has_token) {
    result.has_token = true;
    result.token = request.token;
    result.payload = request.payload;
  }
  if (IsWhole(entry) && wanted && !result.has_token) {
    return absl::InvalidArgumentError("first token: no writer sent it");
  }
  return absl::OkStatus();
}

// The writer that computed for longest saw the whole prefill: a plan's lead is in all its chunks.
void KvIn::AddTimes(Result& result, const PrefillTimes& times) {
  if (!result.times.has_value()) result.times.emplace();
  const TimeUs handoff_us = std::max(result.times->handoff_us, times.handoff_us);
  if (times.prefill_us >= result.times->prefill_us) result.times = times;
  result.times->handoff_us = handoff_us;
}

absl::Status KvIn::AddBytes(Entry& entry, const std::vector<int64_t>& bytes) const {
  const int32_t layers = config_.shape.num_layers;
  if (static_cast<int32_t>(bytes.size()) != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: ", bytes.size(), " written, ", layers, " expected"));
  }
  const int64_t expected = HandoffBytesPerLayer(config_.shape, PromptTokens(*entry.spec));
  entry.bytes_written.resize(bytes.size());
  for (size_t layer = 0; layer < bytes.size(); ++layer) {
    int64_t& written = entry.bytes_written[layer];
    written += bytes[layer];
    if (bytes[layer] == bytes[0] && bytes[layer] >= 0 && written <= expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("bytes of layer ", layer, ": ", bytes[layer],
                                                   " written, ", written, " of ", expected,
                                                   " in all"));
  }
  return absl::OkStatus();
}

bool KvIn::IsWhole(const Entry& entry) const {
  return !entry.bytes_written.empty() &&
         entry.bytes_written.front() ==
             HandoffBytesPerLayer(config_.shape, PromptTokens(*entry.spec));
}

void KvIn::Finish(Entry& entry, absl::Status status, TimeUs now) {
  const RequestId id = entry.spec->id;
  SetPhase(entry, status.ok() ? Phase::kWhole : Phase::kFailed);
  leases_.Remove(id);
  if (status.ok()) {
    CloseGrantOf(entry);
    EndLoansOf(entry, now);
  }
  outcomes_.push_back({id, std::move(status), std::move(entry.result)});
}

void KvIn::WriterStopped(RequestId id, Epoch epoch, InstanceId writer, TimeUs now) {
  EndLoanOf({id, epoch, writer}, now);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.epoch != epoch) return;
  if (it->second.writers.erase(writer) == 0) return;
  it->second.aborted = true;
  Arm(it->second);
}

// ---- time ----

// One writer that went silent is enough: its part will never come.
void KvIn::Arm(const Entry& entry) {
  TimeUs end = kNever;
  if (entry.Coming()) {
    end = entry.lease_end_us;
    for (const auto& [instance, writer] : entry.writers) {
      if (writer.Writes()) end = std::min(end, writer.lease_end_us);
    }
  }
  leases_.Set(entry.spec->id, end);
}

TimeUs KvIn::NextDeadline() const {
  return std::min(leases_.Next(), loans_.has_value() ? loans_->NextDeadline() : kNever);
}

void KvIn::RunTimers(TimeUs now) {
  while (const auto id = leases_.TakeDue(now)) {
    Finish(entries_.at(*id), absl::UnavailableError("the lease of a prefill instance expired"),
           now);
  }
  if (loans_.has_value()) loans_->RunTimers(now);
}

// ---- grants ----

void KvIn::On(const GrantClosed& event, TimeUs) {
  if (loans_.has_value() && loans_->GrantClosed(event.grant)) return;
  const std::optional<Attempt> attempt = quarantine_.Closed(event.grant);
  if (!attempt.has_value()) return;
  const auto entry = entries_.find(attempt->first);
  if (entry != entries_.end() && entry->second.grant == event.grant) entry->second.grant = {};
}

// ---- what it shows ----

const char* KvIn::StateOf(RequestId id) const {
  static constexpr const char* kNames[] = {"reserved", "granted", "whole", "failed"};
  return kNames[static_cast<size_t>(entries_.at(id).phase)];
}

BlockCounts KvIn::CountBlocks() const {
  std::map<BlockId, int> tables;
  for (const auto& [id, entry] : entries_) {
    for (const BlockId block : *entry.blocks) ++tables[block];
  }
  for (const auto& [attempt, kept] : coming_.all()) {
    for (const BlockId block : *kept.blocks) ++tables[block];
  }
  const std::set<BlockId> quarantined = quarantine_.Blocks();
  BlockCounts counts;
  counts.quarantined = std::count_if(quarantined.begin(), quarantined.end(),
                                     [&](BlockId block) { return tables.count(block) == 0; });
  counts.held = static_cast<int64_t>(tables.size()) + counts.quarantined;
  counts.shared = std::count_if(tables.begin(), tables.end(),
                                [](const auto& block) { return block.second > 1; });
  return counts;
}

absl::Status KvIn::CheckInvariants(int64_t others) const {
  for (const absl::Status& status :
       {pool_.CheckInvariants(), quarantine_.CheckInvariants(),
        loans_.has_value() ? loans_->CheckInvariants() : absl::OkStatus()}) {
    if (!status.ok()) return status;
  }
  const auto violated = [](int number, const auto&... what) {
    return absl::InternalError(absl::StrCat("KvIn ", number, ": ", what...));
  };
  Counts counts;
  for (const auto& [id, entry] : entries_) {
    counts.reserved += entry.phase == Phase::kReserved;
    counts.granted += entry.phase == Phase::kGranted;
    if (entry.Coming() != (leases_.Of(id) != kNever)) {
      return violated(3, ToString(id), " is ", StateOf(id), ", its lease ends ", leases_.Of(id));
    }
  }
  if (counts.reserved != counts_.reserved || counts.granted != counts_.granted) {
    return violated(3, counts.reserved, " reserved, ", counts.granted, " granted; counted ",
                    counts_.reserved, ", ", counts_.granted);
  }
  const BlockCounts counted = CountBlocks();
  const BlockCounts pool = pool_.Counts();
  if (counted.quarantined != pool.quarantined) {
    return violated(2, counted.quarantined, " blocks quarantined, ", pool.quarantined,
                    " in the pool");
  }
  if (counted.held + others != pool.held || counted.shared != pool.shared) {
    return violated(1, counted.held + others, " blocks in tables, ", counted.shared,
                    " of them shared; ", pool.held, " held, ", pool.shared, " shared");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
