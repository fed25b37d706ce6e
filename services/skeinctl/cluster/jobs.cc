#include "services/skeinctl/cluster/jobs.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

// As OpenAI's API has it: "in_progress".
std::string StateName(v1::JobState state) {
  constexpr char kPrefix[] = "JOB_STATE_";
  const std::string name = v1::JobState_Name(state);
  return absl::AsciiStrToLower(name.rfind(kPrefix, 0) == 0 ? name.substr(sizeof(kPrefix) - 1)
                                                           : name);
}

std::string Ago(int64_t at_s, int64_t now_s) {
  return DurationText(static_cast<double>(std::max<int64_t>(now_s - at_s, 0))) + " ago";
}

std::string Left(const v1::JobStatus& job) {
  if (job.left_s() == 0) return "-";
  return DurationText(static_cast<double>(job.left_s())) + (job.late() ? " (late)" : "");
}

std::string RateText(const v1::JobStatus& job) {
  return job.tokens_per_s() > 0 ? absl::StrFormat("%.1f", job.tokens_per_s()) : "-";
}

std::string TextOf(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json JsonOf(const v1::JobStatus& job) {
  const auto time = [](int64_t s) { return s == 0 ? Json() : Json(s); };
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json errors = Json::array();
  for (const v1::JobError& error : job.errors()) {
    errors.push_back({{"code", error.code()},
                      {"message", error.message()},
                      {"param", text(error.param())},
                      {"line", error.line() == 0 ? Json() : Json(error.line())}});
  }
  const std::map<std::string, std::string> metadata(job.metadata().begin(), job.metadata().end());
  return {{"id", job.id()},
          {"state", StateName(job.state())},
          {"model", text(job.model())},
          {"endpoint", job.endpoint()},
          {"input_file", job.input_file()},
          {"output_file", text(job.output_file())},
          {"error_file", text(job.error_file())},
          {"lines", job.lines()},
          {"completed", job.completed()},
          {"failed", job.failed()},
          {"running", job.running()},
          {"prompt_tokens", job.prompt_tokens()},
          {"cached_tokens", job.cached_tokens()},
          {"output_tokens", job.output_tokens()},
          {"tokens_per_s", job.tokens_per_s()},
          {"left_s", time(static_cast<int64_t>(job.left_s()))},
          {"late", job.late()},
          {"window_s", job.window_s()},
          {"created_s", time(job.created_s())},
          {"in_progress_s", time(job.in_progress_s())},
          {"expires_s", time(job.expires_s())},
          {"finalizing_s", time(job.finalizing_s())},
          {"completed_s", time(job.completed_s())},
          {"failed_s", time(job.failed_s())},
          {"expired_s", time(job.expired_s())},
          {"cancelling_s", time(job.cancelling_s())},
          {"cancelled_s", time(job.cancelled_s())},
          {"metadata", metadata},
          {"errors", errors}};
}

absl::StatusOr<std::string> Answer(const JobsFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return orchestrator.status();
  ClusterClient client(*orchestrator);
  const bool json = flags.format == "json";
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  if (flags.order.empty() || flags.order == "list") {
    v1::ListJobsRequest request;
    request.set_limit(static_cast<uint32_t>(flags.limit));
    const auto jobs = client.Jobs(request);
    if (!jobs.ok()) return jobs.status();
    return json ? JobsJson(*jobs) : JobsTable(*jobs, now_s);
  }
  const auto job = flags.order == "cancel" ? client.CancelJob(flags.job) : client.Job(flags.job);
  if (!job.ok()) return job.status();
  return json ? JobJson(*job) : JobText(*job, now_s);
}

}  // namespace

std::string JobsTable(const v1::ListJobsResponse& response, int64_t now_s) {
  if (response.jobs().empty()) return "no jobs\n";
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "LINES", "DONE", "FAILED", "RUNNING", "TOK/S", "LEFT", "CREATED", "MODEL"}};
  for (const v1::JobStatus& job : response.jobs()) {
    rows.push_back({job.id(), StateName(job.state()), absl::StrCat(job.lines()),
                    absl::StrCat(job.completed()), absl::StrCat(job.failed()),
                    absl::StrCat(job.running()), RateText(job), Left(job),
                    Ago(job.created_s(), now_s), job.model().empty() ? "-" : job.model()});
  }
  std::string text = AlignedTable(rows);
  if (response.more()) text += "older jobs are not shown: --limit\n";
  return text;
}

std::string JobsJson(const v1::ListJobsResponse& response) {
  Json json = {{"jobs", Json::array()}, {"more", response.more()}};
  for (const v1::JobStatus& job : response.jobs()) json["jobs"].push_back(JsonOf(job));
  return TextOf(json);
}

std::string JobText(const v1::JobStatus& job, int64_t now_s) {
  std::string text =
      absl::StrCat(job.id(), ": ", StateName(job.state()), ", created ",
                   Ago(job.created_s(), now_s), "\n", "  ", job.endpoint(), " from ",
                   job.input_file(), job.model().empty() ? "" : ", model ", job.model(), "\n");
  absl::StrAppend(&text, "  lines: ", job.lines(), ", completed ", job.completed(), ", failed ",
                  job.failed(), ", running ", job.running(), "\n");
  absl::StrAppend(&text, "  tokens: ", job.prompt_tokens(), " of prompts (", job.cached_tokens(),
                  " cached), ", job.output_tokens(), " of answers; ", RateText(job),
                  " per second; left ", Left(job), "\n");
  if (!job.output_file().empty()) absl::StrAppend(&text, "  output: ", job.output_file(), "\n");
  if (!job.error_file().empty()) absl::StrAppend(&text, "  errors: ", job.error_file(), "\n");
  for (const v1::JobError& error : job.errors()) {
    absl::StrAppend(&text, "  ", error.line() == 0 ? "" : absl::StrCat("line ", error.line(), ": "),
                    error.code(), ": ", error.message(), "\n");
  }
  return text;
}

std::string JobJson(const v1::JobStatus& job) { return TextOf(JsonOf(job)); }

void JobsFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "List offline jobs (/v1/batches), show one, or cancel one.\n\nA job that is cancelled keeps "
      "the answers that it has: they are in its output file. ",
      ExitCodesHelp()));
  set->OptionalPositional(&order, "ORDER", "What to do; list is the default.",
                          {"list", "show", "cancel"});
  set->OptionalPositional(&job, "JOB", "The job's id, for show and cancel.");
  RegisterCluster(&orchestrator, set);
  set->Int(&limit, "limit", "Jobs to list, the newest first.", 1, 1000);
  RegisterFormat(&format, "text", set);
  set->Check([this]() -> absl::Status {
    const bool of_one = order == "show" || order == "cancel";
    if (of_one == !job.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(of_one ? "JOB is required" : "JOB: list takes none");
  });
}

int RunJobs(const JobsFlags& flags) {
  const auto text = Answer(flags);
  if (!text.ok()) return EndWith("jobs", text.status());
  std::fputs(text->c_str(), stdout);
  return kDone;
}

}  // namespace skein::services
