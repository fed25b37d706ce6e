// Operators' requests and answers.
#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"

namespace skein::services {
v1::RouterStatus ToProto(const scheduler::RouterStatus& status) {
  v1::RouterStatus out;
  *out.mutable_identity() = ToProto(status.identity);
  *out.mutable_load() = ToProto(status.load);
  out.set_since_report_us(static_cast<uint64_t>(status.silent_us));
  out.set_draining(status.draining);
  out.set_drained(status.drained);
  return out;
}

v1::GoneStatus ToProto(const scheduler::Gone& gone, scheduler::TimeUs now) {
  v1::GoneStatus out;
  out.set_instance(gone.instance.value);
  if (gone.instance.value != 0) {
    out.set_role(gone.role == scheduler::Role::kPrefill ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
  }
  out.set_model(gone.model);
  out.set_endpoint(gone.endpoint);
  out.set_gone_us(static_cast<uint64_t>(now - gone.at_us));
  out.set_why(gone.why);
  out.set_left(gone.left);
  out.set_replaced(gone.replaced);
  return out;
}

absl::StatusOr<scheduler::DrainRequest> FromProto(const v1::DrainRequest& request) {
  if (request.instance() == 0 && request.router() == 0) {
    return Invalid("instance", "is 0 and no router is named");
  }
  return scheduler::DrainRequest{
      {request.instance()}, request.router(), request.undo(), request.force()};
}

}  // namespace skein::services
