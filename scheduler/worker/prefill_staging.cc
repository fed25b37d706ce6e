// A handoff through the decode side's staging buffers: the wish for one, the parts, its return.
#include <utility>

#include "scheduler/worker/prefill_impl.h"

namespace skein::scheduler {

PrefillCore::Impl::Request* PrefillCore::Impl::FindStaged(RequestId id, Epoch epoch) {
  Request* request = FindLive(id, epoch);
  const bool staged =
      request != nullptr && request->handoff.active && request->handoff.staging.has_value();
  return staged ? request : nullptr;
}

void PrefillCore::Impl::RunStagingTimers(Request& request) {
  Staging& staging = *request.handoff.staging;
  if (now_ >= staging.about_backend.retry_us) {
    if (staging.backend == Staging::Backend::kAsked) {
      AskForBackend(request);
    } else {
      ReleaseBackend(request);
    }
  }
  if (now_ >= staging.about_part.retry_us) TellPart(request);
}

// A busy decode side and one that cannot be reached are asked again: the lease bounds it.
bool PrefillCore::Impl::Settle(Request& request, Call& call, const absl::Status& status) {
  call.under_way = false;
  if (status.ok()) return true;
  if (IsUnreachable(status) || status.code() == absl::StatusCode::kResourceExhausted) {
    call.retry_us = now_ + config_.retry_us;
    Arm(call.retry_us);
  } else {
    End(request, EndOf(request.spanning.has_value(), status));
  }
  return false;
}

void PrefillCore::Impl::On(const HandoffWaits& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr) return;
  Staging& staging = *request->handoff.staging;
  staging.waits = true;
  if (staging.backend != Staging::Backend::kNone) return;  // when its return was heard
  ++staging.ask;
  AskForBackend(*request);
}

void PrefillCore::Impl::AskForBackend(Request& request) {
  Staging& staging = *request.handoff.staging;
  staging.backend = Staging::Backend::kAsked;
  staging.about_backend = {.under_way = true};
  effects_.push_back(CallAskBackend{request.endpoint,
                                    {.id = request.spec->id,
                                     .epoch = request.epoch,
                                     .prefill = request.grant.writer,
                                     .ask = staging.ask},
                                    config_.ask_timeout_us});
}

void PrefillCore::Impl::On(const AskBackendReplied& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr) return;
  Staging& staging = *request->handoff.staging;
  const bool ours = staging.backend == Staging::Backend::kAsked &&
                    staging.about_backend.under_way && staging.ask == event.number;
  if (!ours || !Settle(*request, staging.about_backend, event.reply.status)) return;
  staging.backend = Staging::Backend::kHas;
  staging.waits = false;
  effects_.push_back(UseBackend{event.id, event.epoch, event.reply.memory});
}

void PrefillCore::Impl::On(const HandoffPart& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr) return;
  Staging& staging = *request->handoff.staging;
  staging.arrived.insert(staging.arrived.end(), event.blocks.begin(), event.blocks.end());
  if (!staging.telling.empty()) return;
  staging.telling.swap(staging.arrived);
  ++staging.part;
  TellPart(*request);
}

void PrefillCore::Impl::TellPart(Request& request) {
  Staging& staging = *request.handoff.staging;
  staging.about_part = {.under_way = true};
  effects_.push_back(CallTakePart{request.endpoint,
                                  {.id = request.spec->id,
                                   .epoch = request.epoch,
                                   .prefill = request.grant.writer,
                                   .part = staging.part,
                                   .blocks = staging.telling},
                                  config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const TakePartReplied& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr) return;
  Staging& staging = *request->handoff.staging;
  const bool ours = staging.about_part.under_way && staging.part == event.number;
  if (!ours || !Settle(*request, staging.about_part, event.reply.status)) return;
  effects_.push_back(PartTaken{event.id, event.epoch, std::move(staging.telling)});
  staging.telling = std::exchange(staging.arrived, {});
  if (staging.telling.empty()) return;
  ++staging.part;
  TellPart(*request);
}

void PrefillCore::Impl::On(const HandoffIdle& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr || request->handoff.staging->backend != Staging::Backend::kHas) return;
  ReleaseBackend(*request);
}

void PrefillCore::Impl::ReleaseBackend(Request& request) {
  Staging& staging = *request.handoff.staging;
  staging.backend = Staging::Backend::kReleased;
  staging.about_backend = {.under_way = true};
  effects_.push_back(CallReleaseBackend{request.endpoint,
                                        {.id = request.spec->id,
                                         .epoch = request.epoch,
                                         .prefill = request.grant.writer,
                                         .ask = staging.ask},
                                        config_.rpc_timeout_us});
}

void PrefillCore::Impl::On(const ReleaseBackendReplied& event) {
  Request* request = FindStaged(event.id, event.epoch);
  if (request == nullptr) return;
  Staging& staging = *request->handoff.staging;
  const bool ours = staging.backend == Staging::Backend::kReleased &&
                    staging.about_backend.under_way && staging.ask == event.number;
  if (!ours || !Settle(*request, staging.about_backend, event.reply.status)) return;
  staging.backend = Staging::Backend::kNone;
  if (!staging.waits) return;
  ++staging.ask;
  AskForBackend(*request);
}

}  // namespace skein::scheduler
