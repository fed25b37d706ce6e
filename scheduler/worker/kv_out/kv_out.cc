#include "scheduler/worker/kv_out/kv_out.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// The call may be repeated: it did not get through, or the result is unknown.
bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// A decode instance never answers RESOURCE_EXHAUSTED itself to Renew, Commit and OpenTransfers that
// take no blocks. So its inbox was full, and the call may be repeated. The request was accepted, so
// it must not end with 429.
absl::Status OfCall(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status;
}

}  // namespace

void KvOut::Open(const Transfer& transfer, TimeUs now) {
  SKEIN_CHECK(!Has(transfer.id));
  Entry& entry = transfers_[transfer.id];
  entry.transfer = transfer;
  CallOpen(entry, now);
}

void KvOut::Begin(const SpecPtr& spec, Epoch epoch, std::vector<HandoffBlock> blocks, bool more) {
  SKEIN_CHECK(!blocks.empty());
  const bool first = begun_.emplace(spec->id, epoch).second;
  SKEIN_CHECK(first);
  emit_(OpenHandoff{spec->id, epoch, spec, std::move(blocks), more});
  Entry* entry = FindLive(spec->id, epoch);
  if (entry == nullptr) return;
  if (const std::optional<OpenTransferReply> reply = std::exchange(entry->granted, std::nullopt)) {
    StartWriting(*entry, *reply);
  }
}

void KvOut::AddBlocks(RequestId id, std::vector<HandoffBlock> blocks, bool more) {
  emit_(AddToHandoff{id, begun_.at(id), std::move(blocks), more});
}

void KvOut::SetResult(RequestId id, Result result, TimeUs now) {
  Entry& entry = transfers_.at(id);
  entry.result = std::move(result);
  MaybeCommit(entry, now);
}

void KvOut::Stop(RequestId id) {
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return;
  Entry& entry = it->second;
  entry.stopped = true;
  timers_.Remove(id);
  if (entry.sender != Sender::kWriting || entry.stop_sent) return;
  entry.stop_sent = true;
  emit_(StopHandoff{id, entry.transfer.epoch});
}

void KvOut::Close(RequestId id) {
  SKEIN_CHECK(!Writing(id));
  timers_.Remove(id);
  transfers_.erase(id);
}

void KvOut::Forget(RequestId id) {
  Close(id);
  begun_.erase(id);
}

bool KvOut::Writing(RequestId id) const {
  const auto it = transfers_.find(id);
  return it != transfers_.end() && it->second.sender == Sender::kWriting;
}

KvOut::Entry* KvOut::Find(RequestId id, Epoch epoch) {
  const auto it = transfers_.find(id);
  return it != transfers_.end() && it->second.transfer.epoch == epoch ? &it->second : nullptr;
}

KvOut::Entry* KvOut::FindLive(RequestId id, Epoch epoch) {
  Entry* entry = Find(id, epoch);
  return entry != nullptr && !entry->stopped ? entry : nullptr;
}

// The owner stops the sender, if it writes.
void KvOut::Fail(Entry& entry, absl::Status status) {
  entry.stopped = true;
  timers_.Remove(entry.transfer.id);
  outcomes_.push_back({entry.transfer.id, End::kFailed, std::move(status)});
}

void KvOut::SetSender(Entry& entry, Sender sender) {
  writing_ += (sender == Sender::kWriting ? 1 : 0) - (entry.sender == Sender::kWriting ? 1 : 0);
  entry.sender = sender;
}

// The decode side's error. If it does not know the transfer that it had opened, another process is
// at its address: that is no fault of the request. To one of several writers it may say that the
// request has ended there: another writer or an order may be the cause, which is reported
// elsewhere. A permit that it refuses is no fault of the request either: another plan brings
// another one.
absl::Status KvOut::EndOf(const Entry& entry, const absl::Status& status) const {
  const bool others = entry.transfer.one_of_several && absl::IsCancelled(status);
  const bool elsewhere = others || absl::IsNotFound(status) || absl::IsPermissionDenied(status);
  return elsewhere ? absl::UnavailableError(status.message()) : status;
}

void KvOut::CallOpen(Entry& entry, TimeUs now) {
  const Transfer& transfer = entry.transfer;
  entry.open.Send(now);
  Arm(entry);
  emit_(CallOpenTransfer{transfer.endpoint,
                         {.id = transfer.id,
                          .epoch = transfer.epoch,
                          .prefill = transfer.writer,
                          .incarnation = config_.incarnation,
                          .shape = config_.shape},
                         config_.rpc_timeout_us,
                         transfer.permit});
}

void KvOut::On(const OpenTransferReplied& event, TimeUs now) {
  Entry* entry = FindLive(event.id, event.epoch);
  if (entry == nullptr || !entry->open.TakeAnswer()) return;  // its Abort was sent or will be
  const bool takes_blocks = entry->transfer.takes_blocks;
  const absl::Status status = takes_blocks ? event.reply.status : OfCall(event.reply.status);
  if (status.ok()) return Granted(*entry, event.reply, now);
  if (IsUnreachable(status) && entry->open.attempts() < config_.attempts) {
    entry->open.SendAt(now + config_.retry_us);
    return Arm(*entry);
  }
  if (takes_blocks && (IsUnreachable(status) || absl::IsResourceExhausted(status))) {
    entry->stopped = true;
    timers_.Remove(event.id);
    // A call before may have taken the blocks: then this epoch may not be announced there again.
    const bool took_none = entry->open.attempts() == 1;
    outcomes_.push_back({event.id, End::kRefused, took_none ? status : OfCall(status)});
  } else {
    Fail(*entry, EndOf(*entry, status));
  }
}

void KvOut::Granted(Entry& entry, OpenTransferReply reply, TimeUs now) {
  const Transfer& transfer = entry.transfer;
  const absl::Status targets = CheckTargets(reply, PromptTokens(*transfer.spec));
  if (!targets.ok()) return Fail(entry, targets);
  entry.post_until_us = entry.open.sent_us() + reply.lease_us;
  if (now >= entry.post_until_us) {
    return Fail(entry, absl::UnavailableError(
                           "the answer to OpenTransfer came after its lease had expired"));
  }
  entry.renew.SendAt(entry.open.sent_us() + reply.lease_us / 3);
  outcomes_.push_back({transfer.id, End::kOpened, absl::OkStatus()});
  if (Begun(transfer.id)) return StartWriting(entry, reply);
  entry.granted = std::move(reply);
  Arm(entry);
}

// A group of ranks is written to if the blocks of this side can be cut for it.
absl::Status KvOut::CheckTargets(const OpenTransferReply& reply, int64_t prompt_tokens) const {
  HandoffShape shape = config_.shape;
  const auto ranks = static_cast<int64_t>(reply.others.size()) + 1;
  const bool staged = reply.staging_slots > 0;
  const bool group = !staged && shape.layout.tp == 1 && ranks > 1 && reply.layout.tp == ranks &&
                     FitsHeads(reply.layout, shape);
  if (group) shape.layout = reply.layout;
  absl::Status status = CheckSameLayout(reply.layout, shape.layout, "decode", "prefill");
  if (status.ok() && !group && ranks > 1) {
    status = absl::UnavailableError(absl::StrCat("the decode instance granted blocks of ", ranks,
                                                 " ranks in layout.tp ", reply.layout.tp));
  }
  const int64_t expected = staged ? 0 : BlocksOf(shape, prompt_tokens);
  const auto check = [&](const std::vector<BlockId>& blocks) {
    if (static_cast<int64_t>(blocks.size()) == expected) return;
    status.Update(absl::UnavailableError(absl::StrCat("the decode instance granted ", blocks.size(),
                                                      " blocks", group ? " of a rank" : "",
                                                      "; the prompt needs ", expected)));
  };
  check(reply.blocks);
  for (const TransferTarget& other : reply.others) check(other.blocks);
  return status;
}

void KvOut::StartWriting(Entry& entry, const OpenTransferReply& reply) {
  const Transfer& transfer = entry.transfer;
  SetSender(entry, Sender::kWriting);
  if (reply.staging_slots > 0) entry.staging = Staging{};
  Arm(entry);
  emit_(StartHandoff{.id = transfer.id,
                     .epoch = transfer.epoch,
                     .endpoint = transfer.endpoint,
                     .remote_blocks = reply.blocks,
                     .memory = reply.memory,
                     .others = reply.others,
                     .post_until_us = entry.post_until_us,
                     .staging_slots = reply.staging_slots});
}

void KvOut::Renew(Entry& entry, TimeUs now) {
  const Transfer& transfer = entry.transfer;
  entry.renew.Send(now);
  emit_(CallRenew{transfer.endpoint,
                  {.id = transfer.id, .epoch = transfer.epoch, .prefill = transfer.writer},
                  config_.rpc_timeout_us,
                  transfer.permit});
}

void KvOut::On(const RenewReplied& event, TimeUs now) {
  Entry* entry = FindLive(event.id, event.epoch);
  if (entry == nullptr || !entry->renew.TakeAnswer()) return;
  const absl::Status status = OfCall(event.reply.status);
  if (status.ok()) {
    const TimeUs sent_us = entry->renew.sent_us();
    entry->post_until_us = std::max(entry->post_until_us, sent_us + event.reply.lease_us);
    entry->renew.SendAt(std::max(now, sent_us + event.reply.lease_us / 3));
    if (entry->sender == Sender::kWriting) {
      emit_(ExtendHandoff{event.id, event.epoch, entry->post_until_us});
    }
  } else if (IsUnreachable(status)) {
    entry->renew.SendAt(now + config_.retry_us);
  } else if (!entry->commit.under_way()) {  // else the commit's answer says it better
    return Fail(*entry, EndOf(*entry, status));
  }
  Arm(*entry);
}

void KvOut::On(const HandoffDone& event, TimeUs now) {
  Entry* entry = Find(event.id, event.epoch);
  if (entry == nullptr || entry->sender != Sender::kWriting) return;
  SetSender(*entry, Sender::kWritten);
  entry->bytes_per_layer = event.bytes_per_layer;
  entry->path = event.path;
  entry->path.staging_buffer = entry->staging.has_value();
  if (entry->stopped) return SenderEnded(*entry);
  Arm(*entry);
  MaybeCommit(*entry, now);
}

void KvOut::On(const HandoffFailed& event, TimeUs) {
  Entry* entry = Find(event.id, event.epoch);
  if (entry == nullptr || entry->sender != Sender::kWriting) return;
  SetSender(*entry, Sender::kGone);
  if (entry->stopped) return SenderEnded(*entry);
  // Whatever the transport's code was: the request may be handed over elsewhere.
  Fail(*entry, absl::UnavailableError(
                   absl::StrCat("the handoff failed: ", std::string(event.status.message()))));
}

void KvOut::On(const HandoffStopped& event, TimeUs now) {
  On(HandoffFailed{event.id, event.epoch,
                   absl::InternalError("the sender stopped without being told to")},
     now);
}

void KvOut::SenderEnded(Entry& entry) {
  outcomes_.push_back({entry.transfer.id, End::kStopped, absl::OkStatus()});
}

void KvOut::MaybeCommit(Entry& entry, TimeUs now) {
  if (!entry.result.has_value() || entry.sender != Sender::kWritten || entry.stopped) return;
  if (entry.commit.under_way()) return;
  Result& result = *entry.result;
  if (entry.commit.attempts() == 0) result.times.handoff_us = now - result.computed_us;
  entry.commit.Send(now);
  Arm(entry);
  const Transfer& transfer = entry.transfer;
  emit_(CallCommit{transfer.endpoint,
                   {.id = transfer.id,
                    .epoch = transfer.epoch,
                    .bytes_per_layer = entry.bytes_per_layer,
                    .has_token = result.has_token,
                    .token = result.token,
                    .payload = result.payload,
                    .prompt_logprobs = result.prompt_logprobs,
                    .prefill = transfer.writer,
                    .times = result.times},
                   config_.rpc_timeout_us,
                   transfer.permit});
}

void KvOut::On(const CommitReplied& event, TimeUs now) {
  Entry* entry = FindLive(event.id, event.epoch);
  if (entry == nullptr || !entry->commit.TakeAnswer()) return;
  const absl::Status status = OfCall(event.reply.status);
  const bool unknown = IsUnreachable(status) && entry->commit.attempts() >= config_.attempts;
  if (status.ok() || unknown) {
    entry->stopped = true;
    timers_.Remove(event.id);
    outcomes_.push_back({event.id, End::kCommitted, absl::OkStatus(),
                         PathOf(*entry, /*commit_unanswered=*/unknown)});
    return;
  }
  if (absl::IsInvalidArgument(status)) {  // this instance is at fault, not the request
    return Fail(*entry, absl::UnavailableError(absl::StrCat("the decode side refused the commit: ",
                                                            std::string(status.message()))));
  }
  if (!IsUnreachable(status)) return Fail(*entry, EndOf(*entry, status));
  entry->commit.SendAt(now + config_.retry_us);
  Arm(*entry);
}

HandoffPath KvOut::PathOf(const Entry& entry, bool commit_unanswered) {
  HandoffPath path = entry.path;
  path.retries = static_cast<uint32_t>(entry.open.attempts() + entry.commit.attempts() - 2);
  path.commit_unanswered = commit_unanswered;
  return path;
}

TimeUs KvOut::NextTimer(const Entry& entry) {
  if (entry.stopped) return kNever;
  TimeUs next = std::min({entry.open.due_us(), entry.renew.due_us(), entry.commit.due_us()});
  if (entry.sender != Sender::kWriting) return next;
  if (entry.staging.has_value()) {
    next =
        std::min({next, entry.staging->about_buffer.due_us(), entry.staging->about_part.due_us()});
  }
  return std::min(next, entry.post_until_us);
}

void KvOut::RunTimers(TimeUs now) {
  while (const std::optional<RequestId> id = timers_.TakeDue(now)) {
    Entry& entry = transfers_.at(*id);
    RunTimers(entry, now);
    Arm(entry);
  }
}

void KvOut::RunTimers(Entry& entry, TimeUs now) {
  if (entry.sender == Sender::kWriting && now >= entry.post_until_us) {
    return Fail(entry, absl::UnavailableError("the decode side's lease was not renewed"));
  }
  if (entry.open.IsDue(now)) CallOpen(entry, now);
  if (entry.renew.IsDue(now)) Renew(entry, now);
  if (entry.commit.IsDue(now)) MaybeCommit(entry, now);
  if (entry.sender == Sender::kWriting && entry.staging.has_value()) RunStagingTimers(entry, now);
}

absl::Status KvOut::CheckInvariants() const {
  int64_t writing = 0;
  for (const auto& [id, entry] : transfers_) {
    writing += entry.sender == Sender::kWriting ? 1 : 0;
    if (entry.sender != Sender::kWaiting && !Begun(id)) {
      return absl::InternalError(absl::StrCat("KvOut: ", ToString(id), " is written, not begun"));
    }
    if (NextTimer(entry) < timers_.Of(id)) {
      return absl::InternalError(absl::StrCat("KvOut: ", ToString(id), " is due before its timer"));
    }
  }
  if (writing != writing_) {
    return absl::InternalError(
        absl::StrCat("KvOut: ", writing, " transfers write, ", writing_, " counted"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
