#include "services/skeinctl/bench/bench_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/file.h"
#include "services/base/version.h"
#include "services/skeinctl/bench/schedule.h"

namespace skein::services::bench {
namespace {

constexpr int64_t kDefaultRequests = 100;

absl::Status Named(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

absl::Status OneOf(const char* flag, const std::string& value, const char* one, const char* other) {
  if (value == one || value == other) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": '", value, "' is not ", one, " or ", other));
}

absl::Status CheckFlags(const BenchFlags& flags) {
  absl::Status status = OneOf("endpoint", flags.endpoint, "completions", "chat");
  status.Update(OneOf("arrivals", flags.arrivals, "poisson", "constant"));
  status.Update(OneOf("format", flags.format, "table", "json"));
  if (!status.ok()) return status;
  const int files = (flags.sharegpt.empty() ? 0 : 1) + (flags.trace.empty() ? 0 : 1) +
                    (flags.prompts.empty() ? 0 : 1);
  if (files > 1) {
    return absl::InvalidArgumentError("give only one of --sharegpt, --trace and --prompts");
  }
  if (flags.trace.empty() && flags.speedup != 1) {
    return absl::InvalidArgumentError("--speedup needs --trace");
  }
  if (flags.rate > 0 && flags.speedup != 1) {
    return absl::InvalidArgumentError("give only one of --rate and --speedup");
  }
  return absl::OkStatus();
}

PromptForm FormFor(const BenchFlags& flags) {
  return flags.endpoint == "chat" ? PromptForm::kWords : PromptForm::kTokens;
}

// The file given by --sharegpt, --trace or --prompts; empty if none is given.
absl::StatusOr<std::vector<LoadRequest>> FromFile(const BenchFlags& flags) {
  const auto read = [](const char* flag, const std::string& path,
                       const auto& parse) -> absl::StatusOr<std::vector<LoadRequest>> {
    const auto text = ReadFile(path);
    auto requests = text.ok() ? parse(*text) : text.status();
    if (!requests.ok()) return Named(flag, requests.status());
    return requests;
  };
  using Requests = absl::StatusOr<std::vector<LoadRequest>>;
  if (!flags.sharegpt.empty()) {
    return read("sharegpt", flags.sharegpt,
                [](const std::string& text) -> Requests { return ShareGptRequests(text, 0); });
  }
  if (!flags.prompts.empty()) {
    return read("prompts", flags.prompts, [&](const std::string& text) -> Requests {
      return PromptLines(text, flags.output_tokens);
    });
  }
  if (!flags.trace.empty()) {
    return read("trace", flags.trace, [&](const std::string& text) -> Requests {
      return TraceRequests(text, flags.block_tokens, FormFor(flags),
                           static_cast<uint64_t>(flags.seed));
    });
  }
  return std::vector<LoadRequest>();
}

// Number of requests: as requested; or what fits the duration at this rate; or all of a file. A
// closed loop with a duration repeats them as long as it lasts.
int64_t CountFor(const BenchFlags& flags, size_t in_file) {
  constexpr int64_t kMost = 1'000'000;
  constexpr int64_t kClosedLoop = 10'000;
  if (flags.requests > 0) return flags.requests;
  if (flags.duration_s > 0 && (flags.trace.empty() || flags.rate > 0)) {
    if (flags.rate <= 0) return kClosedLoop;
    const double expected = flags.rate * flags.duration_s;
    return std::min<int64_t>(kMost, std::llround(expected + 6 * std::sqrt(expected) + 10));
  }
  const auto rest = static_cast<int64_t>(in_file) - flags.warmup_requests;
  return in_file > 0 ? std::max<int64_t>(1, rest) : kDefaultRequests;
}

std::string DataWords(const BenchFlags& flags) {
  if (!flags.sharegpt.empty()) return absl::StrCat("ShareGPT ", flags.sharegpt);
  if (!flags.prompts.empty()) return absl::StrCat("prompts ", flags.prompts);
  if (!flags.trace.empty()) return absl::StrCat("trace ", flags.trace);
  return absl::StrFormat("random prompts, %d tokens in, %d out", flags.input_tokens,
                         flags.output_tokens);
}

bool IsOpenLoop(const BenchFlags& flags) { return flags.rate > 0 || !flags.trace.empty(); }

std::string LoadWords(const BenchFlags& flags, int64_t concurrency) {
  std::string words;
  if (flags.rate > 0) {
    words = absl::StrFormat("open loop, %s arrivals, %g requests/s", flags.arrivals, flags.rate);
  } else if (IsOpenLoop(flags)) {
    words = "open loop, recorded times";
    if (flags.speedup != 1) absl::StrAppendFormat(&words, ", %g times as fast", flags.speedup);
  } else {
    return absl::StrFormat("closed loop, %d at a time", concurrency);
  }
  if (concurrency > 0) absl::StrAppendFormat(&words, ", at most %d at a time", concurrency);
  return words;
}

std::vector<double> DueTimes(const BenchFlags& flags, const std::vector<LoadRequest>& requests) {
  if (!IsOpenLoop(flags)) return {};
  if (flags.rate > 0) {
    const Arrivals arrivals =
        flags.arrivals == "constant" ? Arrivals::kConstant : Arrivals::kPoisson;
    return ArrivalTimes(arrivals, flags.rate, static_cast<int64_t>(requests.size()),
                        static_cast<uint64_t>(flags.seed));
  }
  std::vector<double> recorded_s;
  for (const LoadRequest& request : requests) recorded_s.push_back(request.at_s.value_or(0));
  return RecordedTimes(std::move(recorded_s), flags.speedup);
}

RunDescription Describe(const BenchFlags& flags, const BenchPlan& plan) {
  RunDescription run;
  run.url = flags.url;
  run.model = flags.model;
  run.endpoint = flags.endpoint;
  run.streaming = flags.streaming;
  run.data = DataWords(flags);
  run.load = LoadWords(flags, plan.options.concurrency);
  run.request_rate = flags.rate;
  if (IsOpenLoop(flags)) run.arrivals = flags.rate > 0 ? flags.arrivals : "trace";
  run.concurrency = plan.options.concurrency;
  run.requests = static_cast<int64_t>(plan.requests.size());
  run.warmup_requests = flags.warmup_requests;
  run.seed = static_cast<uint64_t>(flags.seed);
  run.version = kVersion;
  return run;
}

}  // namespace

void BenchFlags::Register(FlagSet* set) {
  set->About(
      "Put a load on an OpenAI-compatible server and report its latencies.\n"
      "\n"
      "The server may be Skein or another. A latency counts from the moment at which its request "
      "was "
      "to be sent; every failure is counted by kind.\n"
      "\n"
      "Examples:\n"
      "  skeinctl bench --rate 4 --requests 200 --input-tokens 512 --output-tokens 128\n"
      "  skeinctl bench --trace mooncake.jsonl --speedup 10 --goodput time_to_first_token:2000");
  RegisterServer(set);
  RegisterLoad(set);
  RegisterData(set);
  RegisterOutput(set);
}

void BenchFlags::RegisterServer(FlagSet* set) {
  set->Group("Server");
  set->String(&url, "url",
              "Server address. Without a scheme it is https if there is --tls-dir, else http.")
      .Value("http[s]://HOST:PORT")
      .Default("the cluster that deploy/local/up started, else http://127.0.0.1:8000");
  set->String(&model, "model", "Model name; empty means the only one that the server lists.")
      .Value("NAME");
  set->String(&api_key, "api-key",
              "Bearer token; empty means the value of OPENAI_API_KEY, if set.")
      .Value("KEY")
      .Environment("SKEIN_API_KEY");  // also used by deploy/local/ask
  set->String(&tls_dir, "tls-dir",
              "For https: folder with ca.crt of the cluster's authorities, and with tls.crt and "
              "tls.key of a client where the server asks for a certificate. Without it: the "
              "authorities that this machine trusts.")
      .Value("DIR")
      .Environment("SKEIN_TLS_DIR");
  set->String(&endpoint, "endpoint",
              "API to use: completions with prompts as token ids, or chat with prompts as words.")
      .Value("ENDPOINT")
      .OneOf({"completions", "chat"});
  set->Bool(&streaming, "streaming",
            "Stream the answers; otherwise no time to first token is measured.");
  set->Bool(&ignore_eos, "ignore-eos",
            "Request answers of full length; use false for servers that refuse the field.");
  set->Double(&request_timeout_s, "request-timeout-s", "A request that takes longer is an error.",
              0.01, 1e6);
}

void BenchFlags::RegisterLoad(FlagSet* set) {
  set->Group("Load");
  set->Double(
      &rate, "rate",
      "Requests per second, sent on schedule whatever the server does (open loop); 0 means a "
      "closed loop, or the times of --trace.",
      0, 1e6);
  set->String(&arrivals, "arrivals", "Gaps between requests with --rate.")
      .Value("GAPS")
      .OneOf({"poisson", "constant"});
  set->Int(
      &concurrency, "concurrency",
      "Concurrent requests. In a closed loop each starts when another has ended, and 0 means one "
      "at a time; in an open loop it is a limit, and 0 means none.",
      0, 1 << 20);
  set->Int(&requests, "requests",
           "Number of measured requests; 0 means all of a file, else 100; with --duration-s, as "
           "many as fit, in a closed loop at most 10000.",
           0, 100'000'000);
  set->Double(&duration_s, "duration-s", "No request is sent after this time; 0 means no limit.", 0,
              1e6);
  set->Int(&warmup_requests, "warmup-requests",
           "Number of unmeasured requests sent first, in a closed loop.", 0, 1'000'000);
  set->Int(&seed, "seed", "Seed of arrivals, lengths and prompts.", 0, int64_t{1} << 62);
}

void BenchFlags::RegisterData(FlagSet* set) {
  set->Group("Prompts");
  set->Int(&input_tokens, "input-tokens", "Mean length of random prompts.", 1, 1 << 24);
  set->Double(&input_tokens_stddev, "input-tokens-stddev",
              "Standard deviation of the length of random prompts.", 0, 1e7);
  set->Int(&output_tokens, "output-tokens",
           "Mean length of the answers to random and listed prompts.", 1, 1 << 24);
  set->Double(&output_tokens_stddev, "output-tokens-stddev",
              "Standard deviation of the length of answers to random prompts.", 0, 1e7);
  set->String(&sharegpt, "sharegpt",
              "ShareGPT JSON file: the first question of each conversation and the length of its "
              "answer.")
      .Value("FILE");
  set->String(&prompts, "prompts", "File of prompts, one per line: text, or JSON with 'prompt'.")
      .Value("FILE");
  set->String(&trace, "trace",
              "Trace file (from Mooncake, Azure or router --record-trace): its times, lengths and "
              "shared blocks.")
      .Value("FILE");
  set->Double(&speedup, "speedup", "With --trace: replay speed relative to the recording.", 1e-6,
              1e6);
  set->Int(&block_tokens, "block-tokens", "With --trace: tokens per block with a hash id.", 1,
           1 << 20);
}

void BenchFlags::RegisterOutput(FlagSet* set) {
  set->Group("Output");
  set->String(&goodput, "goodput",
              "Limits that a good request meets, as 'time_to_first_token:2000 "
              "inter_token_latency:25' in milliseconds.")
      .Value("METRIC:LIMIT...");
  set->String(&format, "format", "Output format; json has AIPerf's structure.")
      .Value("FORMAT")
      .OneOf({"table", "json"});
  set->String(&out, "out", "The JSON is also written to this file.").Value("FILE");
  set->String(&records_out, "records-out", "A JSON line for each request is written to this file.")
      .Value("FILE");
}

absl::StatusOr<BenchPlan> MakePlan(const BenchFlags& flags) {
  if (absl::Status status = CheckFlags(flags); !status.ok()) return status;
  BenchPlan plan;
  auto url = ParseUrl(flags.url, /*https=*/!flags.tls_dir.empty());
  if (!url.ok()) return Named("url", url.status());
  auto security = tls::OpenSecurity({.tls_dir = flags.tls_dir}, tls::Needs::kAuthority);
  if (!security.ok()) return security.status();
  plan.security = *std::move(security);
  auto objectives = ParseObjectives(flags.goodput);
  if (!objectives.ok()) return Named("goodput", objectives.status());
  const char* key = std::getenv("OPENAI_API_KEY");
  plan.target = {
      *std::move(url), flags.endpoint == "chat" ? Endpoint::kChat : Endpoint::kCompletions,
      flags.model,     !flags.api_key.empty() || key == nullptr ? flags.api_key : key,
      flags.streaming, flags.ignore_eos};
  for (const Objective& objective : *objectives) {
    if (flags.streaming || objective.metric == "request_latency") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--goodput: '", objective.metric, "' is measured only with --streaming"));
  }
  auto file = FromFile(flags);
  if (!file.ok()) return file.status();
  const int64_t count = flags.warmup_requests + CountFor(flags, file->size());
  plan.requests = file->empty()
                      ? RandomRequests(count, {flags.input_tokens, flags.input_tokens_stddev},
                                       {flags.output_tokens, flags.output_tokens_stddev},
                                       FormFor(flags), static_cast<uint64_t>(flags.seed))
                      : Repeated(*file, count);
  const auto measured = plan.requests.begin() + flags.warmup_requests;
  plan.warmup.assign(std::make_move_iterator(plan.requests.begin()),
                     std::make_move_iterator(measured));
  plan.requests.erase(plan.requests.begin(), measured);
  plan.options.due_s = DueTimes(flags, plan.requests);
  plan.options.concurrency =
      IsOpenLoop(flags) ? flags.concurrency : std::max<int64_t>(1, flags.concurrency);
  plan.options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(flags.request_timeout_s * 1e3));
  plan.options.duration_s = flags.duration_s;
  plan.description = Describe(flags, plan);
  plan.description.objectives = *std::move(objectives);
  return plan;
}

}  // namespace skein::services::bench
