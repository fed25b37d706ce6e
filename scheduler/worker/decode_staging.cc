// KV that comes through staging buffers: who has a backend, parts on their way into the blocks.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode_impl.h"

namespace skein::scheduler {

// The writer, as long as it may write.
absl::StatusOr<DecodeCore::Impl::Writer*> DecodeCore::Impl::FindWriter(RequestId id, Epoch epoch,
                                                                       InstanceId writer) {
  if (!backends_.has_value()) {
    return absl::FailedPreconditionError("handoff: one-sided here, without backends");
  }
  Sequence* sequence = Find(id, epoch);
  if (sequence == nullptr || sequence->phase == Phase::kEnded) return WhyGone(id, epoch);
  const auto it = sequence->writers.find(writer);
  if (it == sequence->writers.end()) {
    return absl::FailedPreconditionError("nothing was granted to this writer");
  }
  if (!it->second.writing) {
    return absl::FailedPreconditionError("the writer has committed already");
  }
  return &it->second;
}

void DecodeCore::Impl::On(const AskBackendCalled& event) {
  const AskBackendRequest& request = event.request;
  const absl::StatusOr<Writer*> writer = FindWriter(request.id, request.epoch, request.prefill);
  if (!writer.ok()) {
    effects_.push_back(AnswerAskBackend{event.call, {writer.status(), ""}});
    return;
  }
  // One call of a writer waits at a time.
  std::erase_if(asking_, [&](const Asking& older) {
    if (older.request.id != request.id || older.request.epoch != request.epoch ||
        older.request.prefill != request.prefill) {
      return false;
    }
    effects_.push_back(
        AnswerAskBackend{older.call, {absl::ResourceExhaustedError("asked again"), ""}});
    return true;
  });
  backends_->Ask({request.id, request.epoch}, request.prefill, Listening(), request.ask);
  asking_.push_back({event.call, request, now_ + config_.staging.ask_wait_us});
}

// Calls whose turn has come, whose time is over or whose request has ended.
void DecodeCore::Impl::AnswerAsks() {
  std::erase_if(asking_, [this](const Asking& asking) {
    std::optional<AskBackendReply> reply = ReplyTo(asking);
    if (!reply.has_value()) return false;
    effects_.push_back(AnswerAskBackend{asking.call, *std::move(reply)});
    return true;
  });
}

std::optional<AskBackendReply> DecodeCore::Impl::ReplyTo(const Asking& asking) {
  const AskBackendRequest& request = asking.request;
  const absl::StatusOr<Writer*> writer = FindWriter(request.id, request.epoch, request.prefill);
  if (!writer.ok()) return AskBackendReply{writer.status(), ""};
  const std::optional<int> backend =
      backends_->BackendOf({request.id, request.epoch}, request.prefill);
  if (backend.has_value()) {
    return AskBackendReply{absl::OkStatus(), config_.staging.memory[static_cast<size_t>(*backend)]};
  }
  if (now_ < asking.until_us) return std::nullopt;
  return AskBackendReply{absl::ResourceExhaustedError("no staging buffer yet"), ""};
}

void DecodeCore::Impl::On(const ReleaseBackendCalled& event) {
  const ReleaseBackendRequest& request = event.request;
  if (backends_.has_value()) {
    backends_->Finished({request.id, request.epoch}, request.prefill, Listening(), request.ask);
  }
  effects_.push_back(AnswerReleaseBackend{event.call, {}});
}

absl::Status DecodeCore::Impl::MayTakePart(const TakePartRequest& request,
                                           const Sequence& sequence) const {
  const auto invalid = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is out of range"));
  };
  if (absl::Status status = CheckSameLayout(request.layout, LayoutOf(shape_), "prefill", "decode");
      !status.ok()) {
    return status;
  }
  const Writer& writer = sequence.writers.at(request.prefill);
  if (request.part != writer.parts + 1) {
    return invalid("part", static_cast<int64_t>(request.part));
  }
  if (!backends_->BackendOf({request.id, request.epoch}, request.prefill).has_value()) {
    return absl::FailedPreconditionError("the writer has no backend");
  }
  const int64_t blocks = BlocksOf(shape_, PromptTokens(*sequence.spec));
  for (const StagedBlock& staged : request.blocks) {
    if (staged.slot < 0 || staged.slot >= config_.staging.slots) {
      return invalid("slot", staged.slot);
    }
    if (staged.layer < 0 || staged.layer >= shape_.num_layers) {
      return invalid("layer", staged.layer);
    }
    if (staged.global < 0 || staged.global >= blocks) return invalid("block", staged.global);
  }
  return absl::OkStatus();
}

void DecodeCore::Impl::On(const TakePartCalled& event) {
  const TakePartRequest& request = event.request;
  const auto answer = [&](absl::Status status) {
    effects_.push_back(AnswerTakePart{event.call, {std::move(status)}});
  };
  const absl::StatusOr<Writer*> found = FindWriter(request.id, request.epoch, request.prefill);
  if (!found.ok()) return answer(found.status());
  Writer& writer = **found;
  if (request.part < writer.parts) return answer(absl::OkStatus());  // a call that came late
  if (request.part == writer.parts) {                                // said again
    return answer(writer.part_under_way ? absl::UnavailableError("the part is being taken")
                                        : absl::OkStatus());
  }
  const Sequence& sequence = *Find(request.id, request.epoch);
  if (absl::Status status = MayTakePart(request, sequence); !status.ok()) {
    return answer(std::move(status));
  }
  writer.parts = request.part;
  writer.part_under_way = true;
  const uint64_t copy = next_copy_++;
  copies_[copy] = {event.call, request.id, request.epoch, request.prefill};
  effects_.push_back(
      CopyPart{.copy = copy,
               .id = request.id,
               .epoch = request.epoch,
               .backend = *backends_->BackendOf({request.id, request.epoch}, request.prefill),
               .part = request.blocks,
               .blocks = sequence.blocks});
}

void DecodeCore::Impl::On(const PartCopied& event) {
  const auto it = copies_.find(event.copy);
  if (it == copies_.end()) return;
  const Copy copy = it->second;
  copies_.erase(it);
  absl::Status status = event.status;
  const absl::StatusOr<Writer*> writer = FindWriter(copy.id, copy.epoch, copy.writer);
  if (writer.ok()) {
    (*writer)->part_under_way = false;
    if (!status.ok()) --(*writer)->parts;
  } else if (status.ok()) {
    status = writer.status();
  }
  effects_.push_back(AnswerTakePart{copy.call, {std::move(status)}});
}

bool DecodeCore::Impl::Copying(RequestId id, Epoch epoch) const {
  return std::any_of(copies_.begin(), copies_.end(), [&](const auto& entry) {
    return entry.second.id == id && entry.second.epoch == epoch;
  });
}

}  // namespace skein::scheduler
