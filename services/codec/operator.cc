// Reports of routers and requests of operators.
#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "services/codec/durations.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

using How = scheduler::RouterEnd::How;

absl::StatusOr<How> HowFrom(v1::RouterEnded::How how) {
  switch (how) {
    case v1::RouterEnded::HOW_STOP_TOKEN:
      return How::kStopToken;
    case v1::RouterEnded::HOW_STOP_STRING:
      return How::kStopString;
    case v1::RouterEnded::HOW_MAX_TOKENS:
      return How::kMaxTokens;
    case v1::RouterEnded::HOW_CLIENT_GONE:
      return How::kClientGone;
    case v1::RouterEnded::HOW_FAILED:
      return How::kFailed;
    default:
      return Invalid("ended.how", absl::StrCat(static_cast<int>(how), " is not known"));
  }
}

absl::StatusOr<scheduler::RouterEnd> EndFrom(const v1::RouterEnded& ended) {
  const absl::StatusOr<scheduler::RequestId> id = FromProto(ended.id());
  if (!id.ok()) return id.status();
  const absl::StatusOr<How> how = HowFrom(ended.how());
  if (!how.ok()) return how.status();
  if (ended.output_tokens() > uint64_t{kMaxCount}) {
    return TooLarge("ended.output_tokens", ended.output_tokens(), kMaxCount);
  }
  const auto first_token_us = DurationFrom("ended.first_token_us", ended.first_token_us());
  if (!first_token_us.ok()) return first_token_us.status();
  return scheduler::RouterEnd{*id, *how, ended.why(), static_cast<int64_t>(ended.output_tokens()),
                              ended.has_first_token_us() ? *first_token_us : -1};
}

}  // namespace

absl::StatusOr<scheduler::RouterReport> FromProto(const v1::RouterReport& report) {
  if (report.router() == 0) return Invalid("router", "is 0");
  if (report.endpoint().empty()) return Invalid("endpoint", "is empty");
  if (report.queued() > uint64_t{kMaxCount}) return TooLarge("queued", report.queued(), kMaxCount);
  if (report.running() > uint64_t{kMaxCount}) {
    return TooLarge("running", report.running(), kMaxCount);
  }
  scheduler::RouterReport out;
  out.router = report.router();
  out.endpoint = report.endpoint();
  out.requests = static_cast<int64_t>(report.queued() + report.running());
  out.draining = report.draining();
  out.leaving = report.leaving();
  for (const v1::RouterEnded& ended : report.ended()) {
    absl::StatusOr<scheduler::RouterEnd> end = EndFrom(ended);
    if (!end.ok()) return end.status();
    out.ended.push_back(*std::move(end));
  }
  v1::RouterReport details = report;
  details.clear_ended();
  out.details = details.SerializeAsString();
  return out;
}

v1::RouterReportResponse ToProto(const scheduler::RouterReportReply& reply) {
  v1::RouterReportResponse out;
  if (reply.drain.has_value()) out.set_drain(*reply.drain);
  return out;
}

v1::RouterStatus ToProto(const scheduler::RouterStatus& status) {
  v1::RouterStatus out;
  out.mutable_report()->ParseFromString(status.report.details);
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
    return Invalid("instance", "is 0, and no router is given");
  }
  return scheduler::DrainRequest{
      {request.instance()}, request.router(), request.undo(), request.force()};
}

}  // namespace skein::services
