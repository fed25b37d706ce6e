// OpenAI's objects of files and batches, and what clients are told when a call fails.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/jobs.pb.h"
#include "services/http/message.h"
#include "services/openai/api_error.h"

namespace skein::services {

std::string FileBody(const v1::StoredFile& file);
std::string FileListBody(const v1::ListFilesResponse& list);
std::string FileDeletedBody(const std::string& id);

// With what OpenAI's object does not have under `x_skein`: lines being computed, tokens per second,
// the seconds that are estimated until the end, and whether that is too late.
std::string BatchBody(const v1::JobStatus& job);
std::string BatchListBody(const v1::ListJobsResponse& list);
// "in_progress"
std::string_view StateName(v1::JobState state);

// For the status of a call to the service Jobs. `missing`: the error where what the request names
// does not exist (NOT_FOUND). FAILED_PRECONDITION, UNIMPLEMENTED: 501 jobs_off.
openai::ApiError JobsError(const absl::Status& status, openai::ApiError missing);
openai::ApiError NoSuchFile(const std::string& id, std::string param, int http_status);
openai::ApiError NoSuchBatch(const std::string& id);
openai::ApiError Draining();

// The id in the path BASE/ID or BASE/ID + `suffix`. What is not UTF-8 names nothing: U+FFFD.
std::string IdIn(const http::Request& request, std::string_view base, std::string_view suffix);

http::Response JsonAnswer(std::string body);

}  // namespace skein::services
