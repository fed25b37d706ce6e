// Sends a tracer's spans to a collector by OTLP/HTTP (https://opentelemetry.io/docs/specs/otlp/,
// "OTLP/HTTP") in protobuf, in batches, on a thread of its own. Nothing else waits for it: while
// the collector is away, spans wait in the tracer's queue as far as that has room.
//
// A batch is sent again after 429, 502, 503, 504, or when no HTTP answer came: after the seconds of
// Retry-After, else after a pause that doubles. Any other answer, and a batch that is too old, is
// given up and counted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "services/tracing/endpoint.h"
#include "services/tracing/span.h"
#include "services/tracing/tracer.h"

namespace skein::services {

struct OtlpExporterOptions {
  TraceEndpoint endpoint;
  std::vector<SpanAttribute> resource;  // of the process
  size_t batch_spans_max = 512;
  // Between two looks at the queue, which is emptied each time.
  std::chrono::milliseconds interval{1000};
  std::chrono::milliseconds timeout{10'000};  // of one call
  std::chrono::milliseconds first_pause{1000};
  std::chrono::milliseconds longest_pause{30'000};  // also if Retry-After asks for more
  std::chrono::milliseconds retry_for{60'000};      // of one batch, from its first call on
  std::chrono::milliseconds flush_for{2000};        // at the end
};

class OtlpExporter {
 public:
  // `tracer` outlives it.
  OtlpExporter(OtlpExporterOptions options, Tracer* tracer);
  // Exports what waits, each batch with one call, until flush_for is over; the rest is counted as
  // failed.
  ~OtlpExporter();

  struct Counts {
    uint64_t exported = 0;  // spans that the collector took
    uint64_t failed = 0;    // spans that it refused, or that could not be sent in time
    uint64_t retries = 0;   // calls after the first one of a batch
  };
  Counts counts() const;  // any thread

 private:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { kDone, kRetry };
  struct Batch {
    size_t spans = 0;
    std::string body;
  };

  void Run();
  std::optional<Batch> Next();       // of what waits in the queue
  bool Deliver(const Batch& batch);  // or gives it up; false: it is to stop
  // One call; after kRetry, *pause is what the collector asked for, or 0.
  Outcome Call(const Batch& batch, std::chrono::milliseconds timeout,
               std::chrono::milliseconds* pause);
  void GiveUp(size_t spans, const std::string& why);
  bool Sleep(std::chrono::milliseconds time);  // false: it is to stop
  void Flush(std::optional<Batch> batch);      // this one first

  const OtlpExporterOptions options_;
  Tracer* const tracer_;
  std::atomic<uint64_t> exported_{0}, failed_{0}, retries_{0};
  std::atomic<bool> cancelled_{false};  // ends a call that is under way
  std::mutex mu_;
  std::condition_variable wake_;
  bool flushing_ = false;      // guarded by mu_
  Clock::time_point stop_by_;  // guarded by mu_; once stopping_
  bool stopping_ = false;      // guarded by mu_
  // Of its thread: the latest pause between two calls, 0 while the collector answers; and what was
  // wrong with the latest call.
  std::chrono::milliseconds pause_{0};
  std::string why_;
  std::thread thread_;
};

}  // namespace skein::services
