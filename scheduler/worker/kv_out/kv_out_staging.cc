// A transfer through the decode side's staging buffers: acquired, filled part by part, released.
#include "scheduler/worker/kv_out/kv_out.h"

namespace skein::scheduler {

KvOut::Entry* KvOut::FindStaged(RequestId id, Epoch epoch) {
  Entry* entry = FindLive(id, epoch);
  const bool staged =
      entry != nullptr && entry->sender == Sender::kWriting && entry->staging.has_value();
  return staged ? entry : nullptr;
}

void KvOut::RunStagingTimers(Entry& entry, TimeUs now) {
  if (entry.staging->about_buffer.IsDue(now)) CallAboutBuffer(entry, now);
  if (entry.staging->about_part.IsDue(now)) TellPart(entry, now);
}

// A busy decode side and one that cannot be reached are asked again: the lease bounds it. True: the
// call is done.
bool KvOut::Settle(Entry& entry, Call& call, const absl::Status& status, TimeUs now) {
  call.TakeAnswer();
  if (status.ok()) return true;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsResourceExhausted(status)) {
    call.SendAt(now + config_.retry_us);
    Arm(entry);
  } else {
    Fail(entry, EndOf(entry, status));
  }
  return false;
}

void KvOut::On(const HandoffWaits& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  if (entry == nullptr) return;
  entry->staging->waits = true;
  if (entry->staging->buffer == Staging::Buffer::kNone) AcquireBuffer(*entry, now);
}

void KvOut::AcquireBuffer(Entry& entry, TimeUs now) {
  ++entry.staging->acquisition;
  entry.staging->buffer = Staging::Buffer::kAsked;
  CallAboutBuffer(entry, now);
}

void KvOut::ReleaseBuffer(Entry& entry, TimeUs now) {
  entry.staging->buffer = Staging::Buffer::kReleased;
  CallAboutBuffer(entry, now);
}

void KvOut::CallAboutBuffer(Entry& entry, TimeUs now) {
  Staging& staging = *entry.staging;
  staging.about_buffer.Send(now);
  const Transfer& transfer = entry.transfer;
  if (staging.buffer == Staging::Buffer::kAsked) {
    emit_(CallAcquireStagingBuffer{transfer.endpoint,
                                   {.id = transfer.id,
                                    .epoch = transfer.epoch,
                                    .prefill = transfer.writer,
                                    .ask = staging.acquisition},
                                   config_.acquire_timeout_us,
                                   transfer.permit});
  } else {
    emit_(CallReleaseStagingBuffer{transfer.endpoint,
                                   {.id = transfer.id,
                                    .epoch = transfer.epoch,
                                    .prefill = transfer.writer,
                                    .ask = staging.acquisition},
                                   config_.rpc_timeout_us,
                                   transfer.permit});
  }
}

void KvOut::On(const AcquireStagingBufferReplied& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  if (entry == nullptr) return;
  Staging& staging = *entry->staging;
  const bool ours = staging.buffer == Staging::Buffer::kAsked && staging.about_buffer.under_way() &&
                    staging.acquisition == event.number;
  if (!ours || !Settle(*entry, staging.about_buffer, event.reply.status, now)) return;
  staging.buffer = Staging::Buffer::kHeld;
  staging.waits = false;
  emit_(UseStagingBuffer{event.id, event.epoch, event.reply.memory});
}

void KvOut::On(const HandoffPart& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  if (entry == nullptr) return;
  Staging& staging = *entry->staging;
  staging.arrived.insert(staging.arrived.end(), event.blocks.begin(), event.blocks.end());
  if (!staging.telling.empty()) return;
  staging.telling.swap(staging.arrived);
  ++staging.part;
  TellPart(*entry, now);
}

void KvOut::TellPart(Entry& entry, TimeUs now) {
  Staging& staging = *entry.staging;
  staging.about_part.Send(now);
  emit_(CallTakePart{entry.transfer.endpoint,
                     {.id = entry.transfer.id,
                      .epoch = entry.transfer.epoch,
                      .prefill = entry.transfer.writer,
                      .part = staging.part,
                      .blocks = staging.telling,
                      .layout = config_.shape.layout},
                     config_.rpc_timeout_us,
                     entry.transfer.permit});
}

void KvOut::On(const TakePartReplied& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  if (entry == nullptr) return;
  Staging& staging = *entry->staging;
  const bool ours = staging.about_part.under_way() && staging.part == event.number;
  if (!ours || !Settle(*entry, staging.about_part, event.reply.status, now)) return;
  emit_(PartTaken{event.id, event.epoch, std::move(staging.telling)});
  staging.telling = std::exchange(staging.arrived, {});
  if (staging.telling.empty()) return;
  ++staging.part;
  TellPart(*entry, now);
}

void KvOut::On(const HandoffIdle& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  const bool holds = entry != nullptr && entry->staging->buffer == Staging::Buffer::kHeld;
  if (holds) ReleaseBuffer(*entry, now);
}

void KvOut::On(const ReleaseStagingBufferReplied& event, TimeUs now) {
  Entry* entry = FindStaged(event.id, event.epoch);
  if (entry == nullptr) return;
  Staging& staging = *entry->staging;
  const bool ours = staging.buffer == Staging::Buffer::kReleased &&
                    staging.about_buffer.under_way() && staging.acquisition == event.number;
  if (!ours || !Settle(*entry, staging.about_buffer, event.reply.status, now)) return;
  staging.buffer = Staging::Buffer::kNone;
  if (staging.waits) AcquireBuffer(*entry, now);
}

}  // namespace skein::scheduler
