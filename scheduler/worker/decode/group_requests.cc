#include "scheduler/worker/decode/group_requests.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void GroupRequests::Join() {
  for (const RequestId id : parts_.orders->for_groups()) {
    const DecodeOrders::Announced* announced = parts_.orders->Find(id);
    if (announced == nullptr) continue;  // ended with another one
    absl::Status status = MayJoin(*announced);
    if (status.ok() && MustWait(id)) continue;
    if (status.ok()) status = JoinOne(id);
    if (!status.ok()) parts_.orders->EndAnnounced(id, FinishReason::kError, status);
  }
}

bool GroupRequests::MustWait(RequestId id) const {
  return parts_.opening->Full() || parts_.kv_in->Has(id);
}

absl::Status GroupRequests::MayJoin(const DecodeOrders::Announced& announced) const {
  const BoundGroup& group = *parts_.group;
  if (!group.MayJoin() || group.epoch() != announced.formation) {
    return absl::UnavailableError(absl::StrCat("formation: no group is bound here under epoch ",
                                               announced.formation, ", or it is being released"));
  }
  const absl::Status status = parts_.opening->MayRun(announced);
  if (absl::IsResourceExhausted(status)) return absl::UnavailableError(status.message());
  if (!status.ok()) return status;
  if (announced.spec->want_prompt_logprobs) {
    return absl::UnimplementedError("prompt_logprobs: a bound group computes none");
  }
  if (announced.spec->max_tokens == 0) {
    return absl::UnimplementedError("max_tokens: 0; a bound group computes no prompt alone");
  }
  return absl::OkStatus();
}

// OK: it is a sequence of the group from here on.
absl::Status GroupRequests::JoinOne(RequestId id) {
  const DecodeOrders::Announced& announced = *parts_.orders->Find(id);
  const absl::Status joined =
      parts_.group->Join(announced.spec, announced.epoch, parts_.clock->now, {}, parts_.clock->now);
  if (!joined.ok()) return joined;
  parts_.sequences->Bind(parts_.opening->Enter(id));
  parts_.orders->EndSharers(id);  // no blocks of this instance alone will hold its prompt
  return absl::OkStatus();
}

}  // namespace skein::scheduler
