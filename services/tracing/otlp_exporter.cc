#include "services/tracing/otlp_exporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"
#include "services/http/client.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"
#include "services/tls/security.h"
#include "services/tracing/otlp.h"

namespace skein::services {
namespace {

using std::chrono::milliseconds;

constexpr char kRepeated[] = "trace-endpoint";

bool MayRetry(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

// Of a Retry-After in seconds; 0: there is none, or it is a date.
milliseconds RetryAfter(const http::Response& response) {
  uint32_t seconds = 0;
  const std::string_view text = http::FindHeader(response.headers, "Retry-After");
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &seconds)) return {};
  return milliseconds(int64_t{seconds} * 1000);
}

// Up to a fifth more or less, so that many processes do not call at the same moment.
milliseconds Spread(milliseconds pause) {
  const int64_t fifth = pause.count() / 5;
  if (fifth == 0) return pause;
  return pause - milliseconds(fifth) +
         milliseconds(static_cast<int64_t>(RandomBits() % static_cast<uint64_t>(2 * fifth)));
}

}  // namespace

OtlpExporter::OtlpExporter(OtlpExporterOptions options, Tracer* tracer)
    : options_(std::move(options)), tracer_(tracer), thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    std::unique_lock lock(mu_);
    stopping_ = true;
    stop_by_ = Clock::now() + options_.flush_for;
    wake_.notify_all();
    // A call that is under way is given half of the time, so that a collector that answers is not
    // sent the same again.
    if (!wake_.wait_for(lock, options_.flush_for / 2, [this] { return flushing_; })) {
      cancelled_.store(true);
    }
  }
  thread_.join();
}

OtlpExporter::Counts OtlpExporter::counts() const {
  return {exported_.load(), failed_.load(), retries_.load()};
}

bool OtlpExporter::Sleep(milliseconds time) {
  std::unique_lock lock(mu_);
  return !wake_.wait_for(lock, time, [this] { return stopping_; });
}

void OtlpExporter::Run() {
  while (Sleep(options_.interval)) {
    while (true) {
      std::optional<Batch> batch = Next();
      if (!batch.has_value()) break;
      if (!Deliver(*batch)) return Flush(std::move(batch));
    }
  }
  Flush(std::nullopt);
}

std::optional<OtlpExporter::Batch> OtlpExporter::Next() {
  const std::vector<Span> spans = tracer_->Take(options_.batch_spans_max);
  if (spans.empty()) return std::nullopt;
  return Batch{spans.size(), EncodeSpans(options_.resource, spans)};
}

bool OtlpExporter::Deliver(const Batch& batch) {
  const Clock::time_point end = Clock::now() + options_.retry_for;
  for (bool first = true;; first = false) {
    // Also before the first call for a batch, if the one before found no collector.
    if (!Sleep(pause_)) return false;
    retries_ += first ? 0 : 1;
    milliseconds asked{0};
    if (Call(batch, options_.timeout, &asked) == Outcome::kDone) return true;
    const milliseconds next = asked > milliseconds(0) ? asked : Spread(2 * pause_);
    pause_ = std::clamp(next, options_.first_pause, options_.longest_pause);
    if (Clock::now() + pause_ < end) continue;
    GiveUp(batch.spans, why_);
    return true;
  }
}

OtlpExporter::Outcome OtlpExporter::Call(const Batch& batch, milliseconds timeout,
                                         milliseconds* pause) {
  const auto answer =
      http::Ask(options_.endpoint.address,
                {.method = "POST",
                 .target = options_.endpoint.target,
                 .headers = {{"Content-Type", "application/x-protobuf"}, {"User-Agent", "skein"}},
                 .body = batch.body,
                 .cancelled = &cancelled_},
                timeout, tls::Security());  // the endpoint is http://, whatever the cluster speaks
  if (!answer.ok()) {
    why_ = std::string(answer.status().message());
    return Outcome::kRetry;
  }
  if (MayRetry(answer->status)) {
    why_ = absl::StrCat("the collector answered ", answer->status);
    *pause = RetryAfter(*answer);
    return Outcome::kRetry;
  }
  pause_ = milliseconds(0);
  if (answer->status < 200 || answer->status > 299) {  // 200 by the specification; some say 202
    GiveUp(batch.spans, absl::StrCat("the collector answered ", answer->status));
    return Outcome::kDone;
  }
  const PartialSuccess partial = DecodeAnswer(answer->body);
  const size_t rejected = std::min(batch.spans, static_cast<size_t>(partial.rejected));
  exported_ += batch.spans - rejected;
  if (rejected > 0) {
    GiveUp(rejected, absl::StrCat("the collector refused them: ", partial.message));
  } else {
    RepeatedIsOver(kRepeated);
  }
  return Outcome::kDone;
}

void OtlpExporter::GiveUp(size_t spans, const std::string& why) {
  failed_ += spans;
  if (!AdmitRepeated(kRepeated)) return;
  LogWarning("spans were not exported",
             {{"spans", static_cast<int64_t>(spans)},
              {"collector",
               absl::StrCat(options_.endpoint.address.host, ":", options_.endpoint.address.port)},
              {"reason", why}});
}

void OtlpExporter::Flush(std::optional<Batch> batch) {
  Clock::time_point end;
  {
    std::lock_guard lock(mu_);
    flushing_ = true;
    end = stop_by_;
    cancelled_.store(false);  // that ended the call that was under way
  }
  wake_.notify_all();
  bool reached = true;
  if (!batch.has_value()) batch = Next();
  for (; batch.has_value(); batch = Next()) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    milliseconds asked{0};
    if (reached && left > milliseconds(0)) {
      reached = Call(*batch, left, &asked) == Outcome::kDone;
      if (reached) continue;
    }
    GiveUp(batch->spans, reached ? "the process stopped" : why_);
  }
}

}  // namespace skein::services
