// Id and epoch of the messages that name a request. For the codec's own .cc files.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "services/codec/codec.h"
#include "services/codec/internal.h"

namespace skein::services {

template <typename Message>
absl::StatusOr<scheduler::Epoch> EpochOf(const Message& message) {
  if (message.epoch() == 0) return Invalid("epoch", "is 0");
  return scheduler::Epoch{message.epoch()};
}

// Fills id and epoch of a message that has both.
template <typename Out, typename Message>
absl::Status ReadIdAndEpoch(const Message& message, Out* out) {
  const absl::StatusOr<scheduler::RequestId> id = FromProto(message.id());
  if (!id.ok()) return id.status();
  const absl::StatusOr<scheduler::Epoch> epoch = EpochOf(message);
  if (!epoch.ok()) return epoch.status();
  out->id = *id;
  out->epoch = *epoch;
  return absl::OkStatus();
}

template <typename Out, typename In>
Out WithIdAndEpoch(const In& in) {
  Out out;
  *out.mutable_id() = ToProto(in.id);
  out.set_epoch(in.epoch.value);
  return out;
}

// For messages with a spec and an epoch, such as Assign.
template <typename Out, typename Message>
absl::Status ReadSpecAndEpoch(const Message& message, Out* out) {
  absl::StatusOr<scheduler::SpecPtr> spec = SpecFrom(message.spec());
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<scheduler::Epoch> epoch = EpochOf(message);
  if (!epoch.ok()) return epoch.status();
  out->spec = *std::move(spec);
  out->epoch = *epoch;
  return absl::OkStatus();
}

}  // namespace skein::services
