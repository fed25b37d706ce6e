// Messages as their receivers get them: encoded and decoded by services/codec, as between
// processes. A field that the codec drops is lost in the simulation too; a message that the codec
// refuses is a violation. Messages without a codec (a mere status) stay as they are.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"

namespace skein::sim {

// The decoded message. If the codec refuses it: the message unchanged, and `error` says why.
template <class T>
T OverWire(const T& message, std::string* error) {
  if constexpr (requires { services::FromProto(services::ToProto(message)).status(); }) {
    using Proto = decltype(services::ToProto(message));
    Proto proto;
    proto.ParseFromString(services::ToProto(message).SerializeAsString());
    auto decoded = services::FromProto(proto);
    if (decoded.ok()) return *std::move(decoded);
    if (error->empty()) {
      *error = absl::StrCat(std::string(proto.GetTypeName()), ": ", decoded.status().ToString());
    }
  }
  return message;
}

inline scheduler::SpecPtr OverWire(const scheduler::SpecPtr& spec, std::string* error) {
  v1::RequestSpec proto;
  proto.ParseFromString(services::ToProto(*spec).SerializeAsString());
  absl::StatusOr<scheduler::SpecPtr> decoded = services::FromProto(proto);
  if (decoded.ok()) return *std::move(decoded);
  if (error->empty()) *error = absl::StrCat("RequestSpec: ", decoded.status().ToString());
  return spec;
}

// The prefill-worker gets the orchestrator's effect as an event of its own.
inline scheduler::PlaceDecodeReplied OverWire(const scheduler::AnswerPlaceDecode& answer,
                                              std::string* error) {
  v1::PlaceDecodeResponse proto;
  proto.ParseFromString(services::ToProto(answer).SerializeAsString());
  absl::StatusOr<scheduler::PlaceDecodeReplied> decoded = services::FromProto(proto);
  if (decoded.ok()) return *std::move(decoded);
  if (error->empty()) *error = absl::StrCat("PlaceDecodeResponse: ", decoded.status().ToString());
  return {answer.id, answer.epoch, answer.reply};
}

// A call that failed has nothing but its status.
template <class Reply>
Reply ReplyOverWire(const Reply& reply, std::string* error) {
  if (!reply.status.ok()) {
    Reply failed;
    failed.status = reply.status;
    return failed;
  }
  if constexpr (requires { reply.placed; }) {
    Reply placed;
    placed.placed = OverWire(reply.placed, error);
    return placed;
  } else {
    return OverWire(reply, error);
  }
}

}  // namespace skein::sim
