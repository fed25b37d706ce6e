#include "services/router/jobs/job_objects.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "services/http/error.h"
#include "services/openai/batch_request.h"
#include "services/router/api/api_error_map.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are not UTF-8 become U+FFFD; a client's file name may have some.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json OrNull(int64_t time_s) { return time_s == 0 ? Json() : Json(time_s); }
Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json FileObject(const v1::StoredFile& file) {
  Json json = {{"id", file.id()},
               {"object", "file"},
               {"bytes", file.bytes()},
               {"created_at", file.created_s()}};
  if (file.expires_s() != 0) json["expires_at"] = file.expires_s();
  json["filename"] = file.name();
  json["purpose"] = file.purpose();
  json["status"] = "processed";
  return json;
}

template <typename Objects, typename ToJson>
std::string ListBody(const Objects& objects, bool more, ToJson to_json) {
  Json data = Json::array(), first, last;
  for (const auto& object : objects) data.push_back(to_json(object));
  if (!data.empty()) {
    first = data.front()["id"];
    last = data.back()["id"];
  }
  return Dump({{"object", "list"},
               {"data", std::move(data)},
               {"first_id", std::move(first)},
               {"last_id", std::move(last)},
               {"has_more", more}});
}

Json ErrorsOf(const v1::JobStatus& job) {
  if (job.errors().empty()) return {};
  Json data = Json::array();
  for (const v1::JobError& error : job.errors()) {
    data.push_back({{"code", error.code()},
                    {"message", error.message()},
                    {"param", OrNull(error.param())},
                    {"line", error.line() == 0 ? Json() : Json(error.line())}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json UsageOf(const v1::JobStatus& job) {
  return {{"input_tokens", job.prompt_tokens()},
          {"input_tokens_details", {{"cached_tokens", job.cached_tokens()}}},
          {"output_tokens", job.output_tokens()},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", job.prompt_tokens() + job.output_tokens()}};
}

Json BatchObject(const v1::JobStatus& job) {
  Json metadata;
  for (const auto& [key, value] : job.metadata()) metadata[key] = value;
  Json json = {{"id", job.id()},
               {"object", "batch"},
               {"endpoint", job.endpoint()},
               {"errors", ErrorsOf(job)},
               {"input_file_id", job.input_file()},
               {"completion_window", openai::WindowText(static_cast<int64_t>(job.window_s()))},
               {"status", StateName(job.state())},
               {"output_file_id", OrNull(job.output_file())},
               {"error_file_id", OrNull(job.error_file())},
               {"created_at", job.created_s()},
               {"in_progress_at", OrNull(job.in_progress_s())},
               {"expires_at", OrNull(job.expires_s())},
               {"finalizing_at", OrNull(job.finalizing_s())},
               {"completed_at", OrNull(job.completed_s())},
               {"failed_at", OrNull(job.failed_s())},
               {"expired_at", OrNull(job.expired_s())},
               {"cancelling_at", OrNull(job.cancelling_s())},
               {"cancelled_at", OrNull(job.cancelled_s())},
               {"request_counts",
                {{"total", job.lines()}, {"completed", job.completed()}, {"failed", job.failed()}}},
               {"usage", UsageOf(job)},
               {"metadata", std::move(metadata)},
               {"x_skein",
                {{"running", job.running()},
                 {"tokens_per_s", job.tokens_per_s()},
                 {"left_s", job.left_s() == 0 ? Json() : Json(job.left_s())},
                 {"late", job.late()}}}};
  if (!job.model().empty()) json["model"] = job.model();
  return json;
}

// What an orchestrator without this service answers: in an older version its own text for what it
// cannot parse (services/rpc/rpc.cc).
bool HasNoJobs(const absl::Status& status) {
  return absl::IsUnimplemented(status) ||
         (absl::IsInvalidArgument(status) &&
          status.message() == "the message is not of this method's type");
}

}  // namespace

std::string_view StateName(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_FAILED:
      return "failed";
    case v1::JOB_STATE_IN_PROGRESS:
      return "in_progress";
    case v1::JOB_STATE_FINALIZING:
      return "finalizing";
    case v1::JOB_STATE_COMPLETED:
      return "completed";
    case v1::JOB_STATE_EXPIRED:
      return "expired";
    case v1::JOB_STATE_CANCELLING:
      return "cancelling";
    case v1::JOB_STATE_CANCELLED:
      return "cancelled";
    default:
      return "validating";
  }
}

std::string FileBody(const v1::StoredFile& file) { return Dump(FileObject(file)); }

std::string FileListBody(const v1::ListFilesResponse& list) {
  return ListBody(list.files(), list.more(), FileObject);
}

std::string FileDeletedBody(const std::string& id) {
  return Dump({{"id", id}, {"object", "file"}, {"deleted", true}});
}

std::string BatchBody(const v1::JobStatus& job) { return Dump(BatchObject(job)); }

std::string BatchListBody(const v1::ListJobsResponse& list) {
  return ListBody(list.jobs(), list.more(), BatchObject);
}

openai::ApiError JobsError(const absl::Status& status, openai::ApiError missing) {
  if (absl::IsNotFound(status)) return missing;
  if (HasNoJobs(status)) {
    return {501, "This cluster's orchestrator keeps no files and batches: it is too old.", "",
            "jobs_off"};
  }
  openai::ApiError error = ErrorFrom(status);
  if (absl::IsFailedPrecondition(status)) {
    error.status = 501;
    error.code = "jobs_off";
  }
  return error;
}

openai::ApiError NoSuchFile(const std::string& id, std::string param, int http_status) {
  return {http_status, "No such File object: " + id, std::move(param), ""};
}

openai::ApiError NoSuchBatch(const std::string& id) {
  return {404, "No batch found with id '" + id + "'.", "", ""};
}

openai::ApiError Draining() {
  return {503, "This router is shutting down. Retry.", "", "draining"};
}

std::string IdIn(const http::Request& request, std::string_view base, std::string_view suffix) {
  std::string id = request.path.substr(base.size() + 1);
  if (id.ends_with(suffix)) id.resize(id.size() - suffix.size());
  return http::IsUtf8(id) ? id : "\xef\xbf\xbd";
}

http::Response JsonAnswer(std::string body) {
  http::Response response;
  response.body = std::move(body);
  return response;
}

}  // namespace skein::services
