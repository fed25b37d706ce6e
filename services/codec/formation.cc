// How instances of a group bind and release.
#include <optional>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"
#include "services/rpc/status_map.h"

namespace skein::services {

v1::PrepareFormation::Own ToProto(scheduler::OwnSequences own) {
  switch (own) {
    case scheduler::OwnSequences::kShare:
      return v1::PrepareFormation::SHARE;
    case scheduler::OwnSequences::kSequential:
      return v1::PrepareFormation::SEQUENTIAL;
    case scheduler::OwnSequences::kSoftPreempt:
      return v1::PrepareFormation::SOFT_PREEMPT;
    case scheduler::OwnSequences::kHardPreempt:
      return v1::PrepareFormation::HARD_PREEMPT;
  }
  return v1::PrepareFormation::SHARE;
}

absl::StatusOr<scheduler::OwnSequences> FromProto(v1::PrepareFormation::Own own) {
  switch (own) {
    case v1::PrepareFormation::SHARE:
      return scheduler::OwnSequences::kShare;
    case v1::PrepareFormation::SEQUENTIAL:
      return scheduler::OwnSequences::kSequential;
    case v1::PrepareFormation::SOFT_PREEMPT:
      return scheduler::OwnSequences::kSoftPreempt;
    case v1::PrepareFormation::HARD_PREEMPT:
      return scheduler::OwnSequences::kHardPreempt;
    default:
      return Invalid("own", absl::StrCat(static_cast<int>(own), " is unknown"));
  }
}

v1::SharedMode ToProto(scheduler::SharedMode mode) {
  return mode == scheduler::SharedMode::kCas ? v1::SHARED_MODE_CAS : v1::SHARED_MODE_WAS;
}

absl::StatusOr<std::optional<scheduler::SharedMode>> FromProto(v1::SharedMode mode) {
  switch (mode) {
    case v1::SHARED_MODE_UNSPECIFIED:
      return std::nullopt;
    case v1::SHARED_MODE_WAS:
      return scheduler::SharedMode::kWas;
    case v1::SHARED_MODE_CAS:
      return scheduler::SharedMode::kCas;
    default:
      return Invalid("mode", absl::StrCat(static_cast<int>(mode), " is unknown"));
  }
}

absl::StatusOr<std::optional<scheduler::ShiftRule>> ShiftFrom(std::optional<uint64_t> tokens,
                                                              uint32_t tp) {
  if (tp > kMaxCount) return TooLarge("shift_tp", tp, kMaxCount);
  if (!tokens.has_value()) {
    if (tp > 1) return Invalid("shift_tp", absl::StrCat(tp, " comes without shift_tokens"));
    return std::nullopt;
  }
  if (*tokens > kMaxCount) return TooLarge("shift_tokens", *tokens, kMaxCount);
  return scheduler::ShiftRule{.tokens = static_cast<int64_t>(*tokens),
                              .tp = tp == 0 ? 1 : static_cast<int32_t>(tp)};
}

v1::PrepareFormation ToProto(const scheduler::PrepareFormation& order) {
  v1::PrepareFormation out;
  out.set_epoch(order.epoch);
  out.set_generation(order.generation);
  out.set_first(static_cast<uint32_t>(order.first));
  out.set_size(static_cast<uint32_t>(order.size));
  out.set_keep_us(static_cast<uint64_t>(order.keep_us));
  if (order.shift.has_value()) {
    out.set_shift_tokens(static_cast<uint64_t>(order.shift->tokens));
    if (order.shift->tp != 1) out.set_shift_tp(static_cast<uint32_t>(order.shift->tp));
  }
  out.set_own(ToProto(order.own));
  if (order.own_pause_us) out.set_own_pause_us(static_cast<uint64_t>(*order.own_pause_us));
  if (order.shared) out.set_shared(ToProto(*order.shared));
  return out;
}

absl::StatusOr<scheduler::PrepareFormation> FromProto(const v1::PrepareFormation& order) {
  if (order.epoch() == 0) return Invalid("epoch", "is 0");
  if (order.generation() == 0) return Invalid("generation", "is 0");
  if (order.first() > kMaxCount) return TooLarge("first", order.first(), kMaxCount);
  if (order.size() > kMaxCount) return TooLarge("size", order.size(), kMaxCount);
  if (order.size() < 2) return Invalid("size", absl::StrCat(order.size(), " is below 2"));
  const absl::StatusOr<int64_t> keep_us = DurationFrom("keep_us", order.keep_us());
  if (!keep_us.ok()) return keep_us.status();
  const auto shift =
      ShiftFrom(order.has_shift_tokens() ? std::optional(order.shift_tokens()) : std::nullopt,
                order.shift_tp());
  if (!shift.ok()) return shift.status();
  const absl::StatusOr<scheduler::OwnSequences> own = FromProto(order.own());
  if (!own.ok()) return own.status();
  const absl::StatusOr<int64_t> pause_us = DurationFrom("own_pause_us", order.own_pause_us());
  if (!pause_us.ok()) return pause_us.status();
  scheduler::PrepareFormation out{.epoch = order.epoch(),
                                  .generation = order.generation(),
                                  .first = static_cast<int32_t>(order.first()),
                                  .size = static_cast<int32_t>(order.size()),
                                  .keep_us = *keep_us,
                                  .shift = *shift,
                                  .own = *own};
  if (out.shift.has_value() && !out.shift->Fits(out.size)) {
    return Invalid("shift_tp",
                   absl::StrCat(out.shift->tp, " is not a power of two below the size ", out.size));
  }
  if (order.has_own_pause_us()) out.own_pause_us = *pause_us;
  const auto shared = FromProto(order.shared());
  if (!shared.ok()) return shared.status();
  out.shared = *shared;
  return out;
}

v1::CommitFormation ToProto(const scheduler::CommitFormation& order) {
  v1::CommitFormation out;
  out.set_epoch(order.epoch);
  return out;
}

absl::StatusOr<scheduler::CommitFormation> FromProto(const v1::CommitFormation& order) {
  if (order.epoch() == 0) return Invalid("epoch", "is 0");
  return scheduler::CommitFormation{order.epoch()};
}

v1::EndFormation ToProto(const scheduler::EndFormation& order) {
  v1::EndFormation out;
  out.set_epoch(order.epoch);
  out.set_how(order.how == scheduler::Switch::kHard ? v1::EndFormation::HARD
                                                    : v1::EndFormation::SEQUENTIAL);
  if (!order.why.ok()) ToProto(order.why, out.mutable_why());
  return out;
}

absl::StatusOr<scheduler::EndFormation> FromProto(const v1::EndFormation& order) {
  if (order.epoch() == 0) return Invalid("epoch", "is 0");
  if (!v1::EndFormation::Switch_IsValid(order.how())) {
    return Invalid("how", absl::StrCat(static_cast<int>(order.how()), " is unknown"));
  }
  return scheduler::EndFormation{
      .epoch = order.epoch(),
      .how = order.how() == v1::EndFormation::HARD ? scheduler::Switch::kHard
                                                   : scheduler::Switch::kSequential,
      .why = order.has_why() ? FromProto(order.why())
                             : absl::CancelledError("the orchestrator released the group")};
}

v1::ModeOrder ToProto(const scheduler::OrderMode& order) {
  using Act = scheduler::OrderMode::Act;
  v1::ModeOrder out;
  out.set_epoch(order.epoch);
  out.set_turn(order.turn);
  out.set_mode(ToProto(order.mode));
  out.set_act(order.act == Act::kReady ? v1::ModeOrder::READY
              : order.act == Act::kSet ? v1::ModeOrder::SET
                                       : v1::ModeOrder::DROP);
  return out;
}

absl::StatusOr<scheduler::OrderMode> FromProto(const v1::ModeOrder& order) {
  using Act = scheduler::OrderMode::Act;
  if (order.epoch() == 0) return Invalid("epoch", "is 0");
  if (order.turn() == 0) return Invalid("turn", "is 0");
  const auto mode = FromProto(order.mode());
  if (!mode.ok()) return mode.status();
  if (!mode->has_value()) return Invalid("mode", "is missing");
  if (!v1::ModeOrder::Act_IsValid(order.act())) {
    return Invalid("act", absl::StrCat(static_cast<int>(order.act()), " is unknown"));
  }
  return scheduler::OrderMode{.epoch = order.epoch(),
                              .turn = order.turn(),
                              .mode = **mode,
                              .act = order.act() == v1::ModeOrder::READY ? Act::kReady
                                     : order.act() == v1::ModeOrder::SET ? Act::kSet
                                                                         : Act::kDrop};
}

v1::ModeTold ToProto(const scheduler::ModeTold& told) {
  using Phase = scheduler::ModeTold::Phase;
  v1::ModeTold out;
  out.set_epoch(told.epoch);
  out.set_turn(told.turn);
  out.set_phase(told.phase == Phase::kReady ? v1::ModeTold::READY
                : told.phase == Phase::kSet ? v1::ModeTold::SET
                                            : v1::ModeTold::REFUSED);
  if (!told.why.ok()) ToProto(told.why, out.mutable_why());
  return out;
}

absl::StatusOr<scheduler::ModeTold> FromProto(const v1::ModeTold& told) {
  using Phase = scheduler::ModeTold::Phase;
  if (told.epoch() == 0) return Invalid("epoch", "is 0");
  if (told.turn() == 0) return Invalid("turn", "is 0");
  if (!v1::ModeTold::Phase_IsValid(told.phase())) {
    return Invalid("phase", absl::StrCat(static_cast<int>(told.phase()), " is unknown"));
  }
  scheduler::ModeTold out{.epoch = told.epoch(),
                          .turn = told.turn(),
                          .phase = told.phase() == v1::ModeTold::READY ? Phase::kReady
                                   : told.phase() == v1::ModeTold::SET ? Phase::kSet
                                                                       : Phase::kRefused};
  if (told.has_why()) out.why = FromProto(told.why());
  return out;
}

v1::FormationTold ToProto(const scheduler::FormationTold& told) {
  using Phase = scheduler::FormationTold::Phase;
  v1::FormationTold out;
  out.set_epoch(told.epoch);
  out.set_phase(told.phase == Phase::kPrepared ? v1::FormationTold::PREPARED
                : told.phase == Phase::kBound  ? v1::FormationTold::BOUND
                                               : v1::FormationTold::ENDED);
  if (!told.why.ok()) ToProto(told.why, out.mutable_why());
  out.set_cut_over_us(static_cast<uint64_t>(told.cut_over_us));
  out.set_drain_us(static_cast<uint64_t>(told.drain_us));
  return out;
}

absl::StatusOr<scheduler::FormationTold> FromProto(const v1::FormationTold& told) {
  using Phase = scheduler::FormationTold::Phase;
  if (told.epoch() == 0) return Invalid("epoch", "is 0");
  if (!v1::FormationTold::Phase_IsValid(told.phase())) {
    return Invalid("phase", absl::StrCat(static_cast<int>(told.phase()), " is unknown"));
  }
  const absl::StatusOr<int64_t> cut_over_us = DurationFrom("cut_over_us", told.cut_over_us());
  if (!cut_over_us.ok()) return cut_over_us.status();
  const absl::StatusOr<int64_t> drain_us = DurationFrom("drain_us", told.drain_us());
  if (!drain_us.ok()) return drain_us.status();
  scheduler::FormationTold out{.epoch = told.epoch(),
                               .phase = told.phase() == v1::FormationTold::PREPARED
                                            ? Phase::kPrepared
                                        : told.phase() == v1::FormationTold::BOUND ? Phase::kBound
                                                                                   : Phase::kEnded,
                               .why = {},
                               .cut_over_us = *cut_over_us,
                               .drain_us = *drain_us};
  if (told.has_why()) out.why = FromProto(told.why());
  return out;
}

}  // namespace skein::services
