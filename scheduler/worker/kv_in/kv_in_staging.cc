// KV that comes through staging buffers: who has one, parts on their way into the blocks.
#include "absl/strings/str_cat.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

// The writer, as long as it may write.
absl::StatusOr<KvIn::Writer*> KvIn::FindStaged(RequestId id, Epoch epoch, InstanceId writer) {
  if (!buffers_.has_value()) {
    return absl::FailedPreconditionError(
        "handoff: this instance has no staging buffers (--handoff=one-sided)");
  }
  Entry* entry = FindComing(id, epoch);
  if (entry == nullptr) return WhyGone(id, epoch).status;
  const auto it = entry->writers.find(writer);
  if (it == entry->writers.end()) {
    return absl::FailedPreconditionError("no transfer is open for this writer");
  }
  if (!it->second.Writes()) {
    return absl::FailedPreconditionError("the writer has already committed");
  }
  return &it->second;
}

void KvIn::On(const AcquireStagingBufferCalled& event, TimeUs now) {
  const AcquireStagingBufferRequest& request = event.request;
  const absl::StatusOr<Writer*> writer = FindStaged(request.id, request.epoch, request.prefill);
  if (!writer.ok()) return emit_(AnswerAcquireStagingBuffer{event.call, {writer.status(), ""}});
  const Acquisition acquisition{request.id, request.epoch, request.prefill};
  AnswerAcquisition(acquisition,
                    absl::ResourceExhaustedError(
                        "a later call of this writer replaces this one"));  // an older call
  acquisitions_[acquisition] = event.call;
  acquisition_ends_.Set(acquisition, now + config_.staging.acquire_wait_us);
  const std::optional<int> buffer =
      buffers_->Ask({request.id, request.epoch}, request.prefill, now, request.ask);
  if (buffer.has_value()) AnswerGiven(acquisition, *buffer);
  AnswerGiven();
}

void KvIn::AnswerAcquisition(const Acquisition& acquisition, absl::Status status) {
  const auto it = acquisitions_.find(acquisition);
  if (it == acquisitions_.end()) return;
  emit_(AnswerAcquireStagingBuffer{it->second, {std::move(status), ""}});
  acquisitions_.erase(it);
  acquisition_ends_.Remove(acquisition);
}

// The grant under which it may write to the buffer; 0: not yet, the former writer's is being
// closed.
GrantId KvIn::Lend(int buffer, const Acquisition& acquisition) {
  Lending& lending = lendings_[static_cast<size_t>(buffer)];
  if (lending.grant == GrantId{}) lending = {acquisition, NewGrant()};
  if (lending.writer == acquisition && !lending.closing) return lending.grant;
  if (!std::exchange(lending.closing, true)) emit_(CloseGrant{lending.grant});
  return {};
}

// It waits no longer, unless the buffer may still be written to under its former writer's grant.
void KvIn::AnswerGiven(const Acquisition& acquisition, int buffer) {
  const auto it = acquisitions_.find(acquisition);
  if (it == acquisitions_.end()) return;
  const GrantId grant = Lend(buffer, acquisition);
  if (grant == GrantId{}) return;
  emit_(AnswerAcquireStagingBuffer{
      it->second, {absl::OkStatus(), config_.staging.memory[static_cast<size_t>(buffer)]}, grant});
  acquisitions_.erase(it);
  acquisition_ends_.Remove(acquisition);
}

void KvIn::AnswerGiven() {
  for (int buffer = 0; buffer < buffers_->buffers(); ++buffer) {
    const std::optional<StagingRequest> request = buffers_->OwnerOf(buffer);
    const std::optional<InstanceId> writer = buffers_->WriterOf(buffer);
    if (!writer.has_value()) continue;
    AnswerGiven({request->id, request->epoch, *writer}, buffer);
  }
}

void KvIn::AnswerAcquisitionsOf(const Entry& entry) {
  const RequestId id = entry.spec->id;
  for (const auto& [instance, writer] : entry.writers) {
    AnswerAcquisition({id, entry.epoch, instance}, WhyGone(id, entry.epoch).status);
  }
}

// The writer needs its buffer no longer.
void KvIn::WriterFinished(RequestId id, Epoch epoch, InstanceId writer, TimeUs now) {
  if (!buffers_.has_value()) return;
  AnswerAcquisition({id, epoch, writer},
                    absl::FailedPreconditionError("the writer has committed or aborted"));
  buffers_->Finished({id, epoch}, writer, now);
  AnswerGiven();
}

void KvIn::On(const ReleaseStagingBufferCalled& event, TimeUs now) {
  const ReleaseStagingBufferRequest& request = event.request;
  if (buffers_.has_value()) {
    buffers_->Finished({request.id, request.epoch}, request.prefill, now, request.ask);
    AnswerGiven();
  }
  emit_(AnswerReleaseStagingBuffer{event.call, {}});
}

absl::Status KvIn::MayTakePart(const TakePartRequest& request, const Entry& entry) const {
  const auto invalid = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is out of range"));
  };
  absl::Status layout = CheckSameLayout(request.layout, config_.shape.layout, "prefill", "decode");
  if (!layout.ok()) return layout;
  if (request.part != entry.writers.at(request.prefill).parts + 1) {
    return invalid("part", static_cast<int64_t>(request.part));
  }
  if (!buffers_->BufferOf({request.id, request.epoch}, request.prefill).has_value()) {
    return absl::FailedPreconditionError("the writer has no staging buffer");
  }
  const int64_t blocks = BlocksOf(config_.shape, PromptTokens(*entry.spec));
  for (const StagedBlock& staged : request.blocks) {
    if (staged.slot < 0 || staged.slot >= config_.staging.slots) {
      return invalid("slot", staged.slot);
    }
    if (staged.layer < 0 || staged.layer >= config_.shape.num_layers) {
      return invalid("layer", staged.layer);
    }
    if (staged.global < 0 || staged.global >= blocks) return invalid("block", staged.global);
  }
  return absl::OkStatus();
}

void KvIn::On(const TakePartCalled& event, TimeUs) {
  const TakePartRequest& request = event.request;
  const auto answer = [&](absl::Status status) {
    emit_(AnswerTakePart{event.call, {std::move(status)}});
  };
  const absl::StatusOr<Writer*> found = FindStaged(request.id, request.epoch, request.prefill);
  if (!found.ok()) return answer(found.status());
  Writer& writer = **found;
  if (request.part < writer.parts) return answer(absl::OkStatus());  // a call that came late
  if (request.part == writer.parts && writer.parts > 0) {            // a retry
    return answer(writer.phase == WriterPhase::kTellingPart
                      ? absl::UnavailableError("the part is still being copied")
                      : absl::OkStatus());
  }
  Entry& entry = entries_.at(request.id);
  if (absl::Status status = MayTakePart(request, entry); !status.ok()) {
    return answer(std::move(status));
  }
  writer.parts = request.part;
  writer.phase = WriterPhase::kTellingPart;
  ++entry.copies;
  const uint64_t copy = next_copy_++;
  copies_[copy] = {event.call, request.id, request.epoch, request.prefill};
  emit_(CopyPart{.copy = copy,
                 .id = request.id,
                 .epoch = request.epoch,
                 .buffer = *buffers_->BufferOf({request.id, request.epoch}, request.prefill),
                 .part = request.blocks,
                 .blocks = entry.blocks});
}

void KvIn::On(const PartCopied& event, TimeUs) {
  const auto it = copies_.find(event.copy);
  if (it == copies_.end()) return;
  const Copy copy = it->second;
  copies_.erase(it);
  absl::Status status = event.status;
  const absl::StatusOr<Writer*> writer = FindStaged(copy.id, copy.epoch, copy.writer);
  if (writer.ok()) {
    (*writer)->phase = WriterPhase::kWriting;
    if (!status.ok()) --(*writer)->parts;
  } else if (status.ok()) {
    status = writer.status();
  }
  EndCopy(copy.id, copy.epoch);
  emit_(AnswerTakePart{copy.call, {std::move(status)}});
}

// A sequence that was released and came back has no copies of its own.
void KvIn::EndCopy(RequestId id, Epoch epoch) {
  const auto quarantine = quarantines_.find({id, epoch});
  if (quarantine != quarantines_.end()) {
    --quarantine->second.copies;
    return FreeIfSafe({id, epoch});
  }
  const auto entry = entries_.find(id);
  if (entry != entries_.end() && entry->second.epoch == epoch) --entry->second.copies;
}

}  // namespace skein::scheduler
