#include "services/skeinctl/chaos/batch_load.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "boost/asio/io_context.hpp"
#include "nlohmann/json.hpp"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/bench/http_client.h"
#include "services/skeinctl/chaos/load_mix.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services::chaos {
namespace {

using bench::CallEnd;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr int64_t kDifferent = 8;  // requests
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr auto kAgain = std::chrono::milliseconds(200);  // before a call is sent again
constexpr auto kSeenWithin = std::chrono::seconds(60);
constexpr const char* kEdge = "skeinctl-chaos-batch";

// Completions of different lengths, so that they do not end together; by turns greedy and sampled.
std::vector<StreamRequest> RequestsOf(const BatchOptions& options) {
  const int64_t count = std::min(kDifferent, options.lines);
  const auto prompts = bench::RandomRequests(count, {.mean = options.prompt_tokens, .deviation = 0},
                                             {.mean = options.tokens, .deviation = 0},
                                             bench::PromptForm::kTokens, options.seed);
  std::vector<StreamRequest> requests;
  requests.reserve(prompts.size());
  for (const auto& one : prompts) {
    const int64_t longer = options.tokens * static_cast<int64_t>(requests.size()) / kDifferent;
    requests.push_back({.kind = "batch",
                        .prompt = std::get<std::vector<int32_t>>(one.prompt),
                        .output_tokens = options.tokens + longer,
                        .temperature = requests.size() % 2 == 0 ? 0 : 0.8,
                        .seed = options.seed + requests.size(),
                        .streamed = false});
  }
  return requests;
}

LoadOptions WithRequests(LoadOptions load, const BatchOptions& options) {
  load.requests = RequestsOf(options);
  load.streams = 1;
  return load;
}

// The line's index; negative: it is none of so many.
int64_t IndexOf(const Json& line, int64_t lines) {
  const auto name = line.find("custom_id");
  if (name == line.end() || !name->is_string()) return -1;
  const std::vector<std::string> parts = absl::StrSplit(name->get<std::string>(), '-');
  int64_t index = -1;
  if (parts.size() != 2 || parts[0] != "line" || !absl::SimpleAtoi(parts[1], &index)) return -1;
  return index < lines ? index : -1;
}

// Whether the line has an answer, whose tokens are put into `tokens`.
bool TokensOf(const Json& line, std::vector<int32_t>* tokens) {
  try {
    const Json& response = line.at("response");
    if (response.at("status_code").get<int>() != 200) return false;
    *tokens = response.at("body").at("choices").at(0).at("token_ids").get<std::vector<int32_t>>();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string StringIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// As a multipart form.
std::string FormOf(const std::string& content) {
  return absl::StrCat(
      "--", kEdge, "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--", kEdge,
      "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"chaos.jsonl\""
      "\r\nContent-Type: application/jsonl\r\n\r\n",
      content, "\r\n--", kEdge, "--\r\n");
}

}  // namespace

std::string BatchLine(const std::string& model, const std::vector<StreamRequest>& requests,
                      int64_t index) {
  const StreamRequest& request = requests[static_cast<size_t>(index) % requests.size()];
  const Json line = {{"custom_id", absl::StrCat("line-", index)},
                     {"method", "POST"},
                     {"url", "/v1/completions"},
                     {"body", Json::parse(BodyOf(model, request))}};
  return absl::StrCat(line.dump(), "\n");
}

Counts JudgeBatch(const std::string& written, int64_t lines,
                  const std::vector<Reference>& references) {
  Counts counts;
  counts.requests = lines;
  std::vector<bool> seen(static_cast<size_t>(lines));
  for (const absl::string_view text : absl::StrSplit(written, '\n', absl::SkipEmpty())) {
    const Json line = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    const int64_t index = line.is_object() ? IndexOf(line, lines) : -1;
    if (index < 0) {
      ++counts.wrong;
      continue;
    }
    if (seen[static_cast<size_t>(index)]) ++counts.doubled;
    seen[static_cast<size_t>(index)] = true;
    std::vector<int32_t> tokens;
    if (!TokensOf(line, &tokens)) {
      ++counts.failed;
      continue;
    }
    counts.tokens += static_cast<int64_t>(tokens.size());
    const Reference& expected = references[static_cast<size_t>(index) % references.size()];
    if (tokens != expected.choices[0].tokens) ++counts.wrong;
  }
  counts.lost = std::count(seen.begin(), seen.end(), false);
  return counts;
}

// One call at a time. While a router is away or not ready the next one is asked, as a client would.
class BatchLoad::Client {
 public:
  explicit Client(const LoadOptions& load) : load_(load) {}

  absl::Status Open() {
    for (const bench::Url& url : load_.routers) {
      clients_.push_back(std::make_unique<bench::HttpClient>(&io_));
      if (absl::Status resolved = clients_.back()->Resolve(url); !resolved.ok()) return resolved;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Call(const std::string& method, const std::string& path,
                                   const std::string& body = "",
                                   const std::string& type = "application/json") {
    const auto until = Clock::now() + load_.hung_after;
    std::string why;
    while (Clock::now() < until && !StopSignalled()) {
      const size_t router = turn_++ % clients_.size();
      std::string answer;
      const int status = CallOnce(router, method, path, body, type, &answer, &why);
      if (status / 100 == 2) return answer;
      if (status == 501) return absl::UnimplementedError("this cluster takes no batches");
      const bool later = status == 0 || status == 429 || status == 502 || status == 503;
      if (status != 0) why = absl::StrCat("HTTP ", status, ": ", answer);
      if (!later) break;
      WaitUnlessStopped(kAgain);
    }
    if (StopSignalled()) return absl::AbortedError("interrupted");
    return absl::UnavailableError(absl::StrCat(method, " ", path, ": ", why));
  }

 private:
  // The status; 0: there is none, and `why` tells why.
  int CallOnce(size_t router, const std::string& method, const std::string& path,
               const std::string& body, const std::string& type, std::string* answer,
               std::string* why) {
    const bench::Url& url = load_.routers[router];
    bench::HttpCall call{.method = method,
                         .target = url.path + path,
                         .headers = {{"Host", absl::StrCat(url.host, ":", url.port)},
                                     {"User-Agent", "skeinctl-chaos"},
                                     {"Connection", "close"}},
                         .body = body};
    if (!body.empty()) call.headers.emplace_back("Content-Type", type);
    if (!load_.api_key.empty()) {
      call.headers.emplace_back("Authorization", absl::StrCat("Bearer ", load_.api_key));
    }
    int status = 0;
    bool done = false;
    clients_[router]->Send(std::move(call), load_.hung_after,
                           {.on_status = [&](int code) { status = code; },
                            .on_body = [&](std::string_view bytes) { answer->append(bytes); },
                            .on_end =
                                [&](CallEnd end, const std::string& text) {
                                  done = end == CallEnd::kDone;
                                  *why = text;
                                }});
    io_.restart();
    io_.run();
    return done ? status : 0;
  }

  const LoadOptions& load_;
  boost::asio::io_context io_{1};
  std::vector<std::unique_ptr<bench::HttpClient>> clients_;  // by router
  size_t turn_ = 0;
};

BatchLoad::BatchLoad(LoadOptions load, const BatchOptions& options)
    : load_(WithRequests(std::move(load), options)), options_(options) {}

BatchLoad::~BatchLoad() = default;

absl::Status BatchLoad::Prepare() {
  if (client_ != nullptr) return absl::OkStatus();
  ChaosLoad alone(load_);
  if (absl::Status open = alone.Open(); !open.ok()) return open;
  std::vector<Reference> references;
  references.reserve(load_.requests.size());
  for (size_t i = 0; i < load_.requests.size(); ++i) {
    const auto record = alone.Alone(i);
    if (!record.ok()) return record.status();
    references.push_back(ReferenceOf(load_.requests[i], *record));
  }
  auto client = std::make_unique<Client>(load_);
  if (absl::Status open = client->Open(); !open.ok()) return open;
  references_ = std::move(references);
  client_ = std::move(client);
  return absl::OkStatus();
}

absl::Status BatchLoad::Start() {
  std::string content;
  for (int64_t i = 0; i < options_.lines; ++i) {
    content += BatchLine(load_.model, load_.requests, i);
  }
  const auto file = client_->Call("POST", "/v1/files", FormOf(content),
                                  absl::StrCat("multipart/form-data; boundary=", kEdge));
  if (!file.ok()) return file.status();
  input_file_ = StringIn(Json::parse(*file, nullptr, false), "id");
  const Json asked = {{"input_file_id", input_file_},
                      {"endpoint", "/v1/completions"},
                      {"completion_window", "24h"}};
  const auto batch = client_->Call("POST", "/v1/batches", asked.dump());
  if (!batch.ok()) return batch.status();
  batch_ = StringIn(Json::parse(*batch, nullptr, false), "id");
  if (!batch_.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("POST /v1/batches: no id in the answer: ", *batch));
}

absl::StatusOr<BatchLoad::Progress> BatchLoad::Look() {
  const auto answer = client_->Call("GET", absl::StrCat("/v1/batches/", batch_));
  if (!answer.ok()) return answer.status();
  const Json json = Json::parse(*answer, nullptr, false);
  Progress progress;
  progress.status = StringIn(json, "status");
  for (const char* end : {"completed", "failed", "expired", "cancelled"}) {
    progress.ended = progress.ended || progress.status == end;
  }
  for (const char* name : {"output_file_id", "error_file_id"}) {
    if (std::string file = StringIn(json, name); !file.empty()) {
      progress.files.push_back(std::move(file));
    }
  }
  const auto counts = json.find("request_counts");
  if (counts != json.end() && counts->is_object()) {
    progress.completed = counts->value("completed", int64_t{0});
  }
  return progress;
}

absl::Status BatchLoad::AwaitMidst() {
  const auto until = Clock::now() + kSeenWithin;
  while (Clock::now() < until) {
    if (StopSignalled()) return absl::AbortedError("interrupted");
    const auto progress = Look();
    if (!progress.ok()) return progress.status();
    if (progress->ended || progress->completed >= options_.lines) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the batch was over before the fault: %s; give more --batch-lines", progress->status));
    }
    if (progress->completed > 0) return absl::OkStatus();
    WaitUnlessStopped(kLook);
  }
  return absl::DeadlineExceededError(absl::StrFormat(
      "no line of the batch was answered within %d s: give less --streams", kSeenWithin.count()));
}

absl::StatusOr<Row> BatchLoad::Await() {
  const auto until = Clock::now() + load_.hung_after;
  Progress progress;
  while (!progress.ended) {
    auto seen = Look();
    if (!seen.ok()) return seen.status();
    progress = *std::move(seen);
    if (progress.ended || Clock::now() > until) break;
    if (StopSignalled()) return absl::AbortedError("interrupted");
    WaitUnlessStopped(kLook);
  }
  Row row;
  Counts counts;
  if (progress.ended) {
    std::string written;
    for (const std::string& file : progress.files) {
      const auto content = client_->Call("GET", absl::StrCat("/v1/files/", file, "/content"));
      if (!content.ok()) return content.status();
      written += *content;
    }
    counts = JudgeBatch(written, options_.lines, references_);
  } else {
    // Best effort, as Remove: it would go on beside the next scenario.
    client_->Call("POST", absl::StrCat("/v1/batches/", batch_, "/cancel")).status().IgnoreError();
    counts.requests = options_.lines;
    counts.hung = options_.lines - progress.completed;
  }
  if (progress.status != "completed") {
    row.errors[absl::StrCat("batch: its status is ", progress.status)] = 1;
  }
  row.Add(counts);
  row.kinds["batch"] = counts;
  for (const std::string& file : progress.files) Remove(file);
  Remove(input_file_);
  return row;
}

// Best effort: what stays can be deleted by hand.
void BatchLoad::Remove(const std::string& file) {
  if (file.empty()) return;
  client_->Call("DELETE", absl::StrCat("/v1/files/", file)).status().IgnoreError();
}

}  // namespace skein::services::chaos
