// The parameters that bodies of single endpoints may have. Those that all generating endpoints
// share are in api_description.h. Internal to services/openai; endpoints.cc puts them together.
#pragma once

#include <vector>

#include "services/openai/api_description.h"

namespace skein::services::openai {

std::vector<Parameter> CompletionParameters();
std::vector<Parameter> ChatInputParameters();  // the conversation, and how it becomes a prompt
std::vector<Parameter> ChatParameters();       // the others
std::vector<Parameter> ResponseParameters();
std::vector<Parameter> ResponseSamplingParameters();  // those of SamplingParameters that it has
// Of `prompt` and `messages` one is required, so neither is marked as required.
std::vector<Parameter> TokenizeParameters();
std::vector<Parameter> TokenizeChatParameters();
std::vector<Parameter> DetokenizeParameters();

// The endpoints of files and batches (job_endpoints.cc), without the errors of the server.
std::vector<Endpoint> JobEndpoints();

}  // namespace skein::services::openai
