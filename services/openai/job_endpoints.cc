// Files and batches in the API's description.
#include <utility>
#include <vector>

#include "services/openai/api_description.h"
#include "services/openai/endpoint_parameters.h"

namespace skein::services::openai {
namespace {

constexpr double kExpiresMinS = 3600, kExpiresMaxS = 2592000;
constexpr std::string_view kCreatedAt = R"("created_at")";

std::vector<Parameter> FileForm() {
  return {{.name = "file",
           .type = Type::kString,
           .openai = "up to 512 MB; of a batch 200 MB",
           .meaning = "The file, with its name. Up to --max-file-bytes.",
           .required = true},
          {.name = "purpose",
           .type = Type::kString,
           .openai = "and others",
           .meaning = "`batch`: the input of a batch. Files for other purposes are refused.",
           .required = true,
           .example = R"("batch")"},
          {.name = "expires_after[anchor]",
           .type = Type::kString,
           .openai = "yes",
           .meaning = "`created_at`.",
           .example = kCreatedAt},
          {.name = "expires_after[seconds]",
           .type = Type::kInt,
           .low = kExpiresMinS,
           .high = kExpiresMaxS,
           .fallback = "2592000",
           .openai = "3600 to 2592000",
           .meaning = "After so many seconds the file is deleted."}};
}

Parameter After(std::string_view what) {
  return {.name = "after", .type = Type::kString, .openai = "yes", .meaning = what};
}

Parameter Limit(double high, std::string_view fallback, std::string_view openai) {
  return {.name = "limit",
          .type = Type::kInt,
          .low = 1,
          .high = high,
          .fallback = fallback,
          .openai = openai,
          .meaning = "At most so many; `has_more` says whether there are others."};
}

std::vector<Parameter> FileQuery() {
  return {After("The page begins after the file of this id."),
          Limit(10'000, "10000", "1 to 10000"),
          {.name = "order",
           .type = Type::kString,
           .fallback = "desc",
           .openai = "yes",
           .meaning = "By `created_at`: `asc` or `desc`."},
          {.name = "purpose",
           .type = Type::kString,
           .fallback = "any",
           .openai = "yes",
           .meaning = "Only files of this purpose: `batch` or `batch_output`."}};
}

std::vector<Parameter> BatchQuery() {
  return {After("The page begins after the batch of this id."), Limit(100, "20", "1 to 100")};
}

std::vector<Parameter> BatchParameters() {
  return {
      {.name = "input_file_id",
       .type = Type::kString,
       .openai = "yes",
       .meaning = "A file of requests, one a line (offline.md).",
       .required = true,
       .example = R"("m")"},
      {.name = "endpoint",
       .type = Type::kString,
       .openai = "and others",
       .meaning = "Of all its lines: `/v1/chat/completions` or `/v1/completions`.",
       .required = true,
       .example = R"("/v1/chat/completions")"},
      {.name = "completion_window",
       .type = Type::kString,
       .openai = "`24h`",
       .meaning = "When it expires, from its creation on: a number and `m`, `h` or `d`, from "
                  "`1m` to `30d`.",
       .required = true,
       .example = R"("24h")"},
      {.name = "metadata",
       .type = Type::kObject,
       .fallback = "none",
       .openai = "yes",
       .meaning = "Up to 16 strings, with names of up to 64 and values of up to 512 characters. "
                  "They come back with the batch.",
       .example = R"({"team": "a"})"},
      {.name = "output_expires_after",
       .type = Type::kObject,
       .fallback = "never",
       .openai = "yes",
       .meaning = "When the output and error files are deleted: `anchor` is `created_at`, of these "
                  "files, and `seconds` from 3600 to 2592000.",
       .example = R"({"anchor": "created_at", "seconds": 3600})"}};
}

}  // namespace

std::vector<Endpoint> JobEndpoints() {
  std::vector<Endpoint> all;
  all.push_back({.method = "POST",
                 .path = "/v1/files",
                 .summary = "Stores a file.",
                 .parameters = {},
                 .answer = Body::kFile,
                 .errors = {"invalid_value", "missing_required_parameter", "unknown_parameter",
                            "unsupported_media_type", "rate_limit_exceeded", "draining"},
                 .form = FileForm()});
  all.push_back({.method = "GET",
                 .path = "/v1/files",
                 .summary = "Lists the files.",
                 .parameters = {},
                 .answer = Body::kFiles,
                 .errors = {"invalid_value", "unknown_parameter"},
                 .query = FileQuery()});
  all.push_back({.method = "GET",
                 .path = "/v1/files/*",
                 .summary = "One file, by its id. 404 without a code: there is none.",
                 .parameters = {},
                 .answer = Body::kFile});
  all.push_back({.method = "DELETE",
                 .path = "/v1/files/*",
                 .summary = "Deletes it.",
                 .parameters = {},
                 .answer = Body::kFileDeleted});
  all.push_back({.method = "GET",
                 .path = "/v1/files/*/content",
                 .summary = "Its content.",
                 .parameters = {},
                 .answer = Body::kBytes});
  all.push_back(
      {.method = "POST",
       .path = "/v1/batches",
       .summary = "Computes a file of requests on what online requests leave.",
       .parameters = BatchParameters(),
       .answer = Body::kBatch,
       .errors = {"invalid_json", "invalid_type", "invalid_value", "missing_required_parameter",
                  "unknown_parameter", "unsupported_media_type", "draining"}});
  all.push_back({.method = "GET",
                 .path = "/v1/batches",
                 .summary = "Lists the batches, the newest first.",
                 .parameters = {},
                 .answer = Body::kBatches,
                 .errors = {"invalid_value", "unknown_parameter"},
                 .query = BatchQuery()});
  all.push_back({.method = "GET",
                 .path = "/v1/batches/*",
                 .summary = "One batch, by its id. 404 without a code: there is none.",
                 .parameters = {},
                 .answer = Body::kBatch});
  all.push_back({.method = "POST",
                 .path = "/v1/batches/*/cancel",
                 .summary = "Cancels it. 409 without a code: it has ended.",
                 .parameters = {},
                 .answer = Body::kBatch});
  for (Endpoint& endpoint : all) {
    for (const std::string_view code : {"jobs_off", "unavailable", "internal_error"}) {
      endpoint.errors.push_back(code);
    }
  }
  return all;
}

}  // namespace skein::services::openai
