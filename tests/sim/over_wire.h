// Messages as their receivers get them: encoded and decoded by services/codec, as between
// processes. A field that the codec drops is lost in the simulation too; a message that the codec
// refuses is a violation (Network::malformed). Messages without a codec (a mere status) stay as
// they are.
#pragma once

#include <memory>
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

// An order with a request's head, as its worker gets it: with the spec. If the codec refuses it,
// the spec has nothing but the id.
template <template <class> class Order>
Order<scheduler::RequestSpec> OverWire(const Order<scheduler::RequestHead>& order,
                                       std::string* error) {
  using Proto = decltype(services::ToProto(order));
  Proto proto;
  proto.ParseFromString(services::ToProto(order).SerializeAsString());
  auto decoded = services::FromProto(proto);
  if (decoded.ok()) return *std::move(decoded);
  if (error->empty()) {
    *error = absl::StrCat(std::string(proto.GetTypeName()), ": ", decoded.status().ToString());
  }
  scheduler::RequestSpec spec;
  spec.id = order.spec->id;
  return {std::make_shared<const scheduler::RequestSpec>(std::move(spec)), order.epoch};
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
