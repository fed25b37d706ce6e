// Tokenizer::Load and FromJson.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>

#include "engine/tokenizer/parts.h"
#include "engine/tokenizer/text/tokenizer_json.h"

namespace skein::engine {
namespace {

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(path.string() + ": cannot be opened");
  std::ostringstream content;
  content << in.rdbuf();
  if (in.bad() || content.bad()) return absl::DataLossError(path.string() + ": cannot be read");
  return std::move(content).str();
}

absl::StatusOr<Json> ParseConfig(std::string_view text) {
  if (text.empty()) return Json::object();
  absl::StatusOr<TokenizerJson> parsed = ParseTokenizerJson(text);  // for its bound on nesting
  if (!parsed.ok())
    return absl::InvalidArgumentError("tokenizer_config.json: " +
                                      std::string(parsed.status().message()));
  return std::move(parsed->document);
}

}  // namespace

void Tokenizer::Parts::AddTokens(const std::vector<AddedToken>& tokens) {
  size_t size = model.tokens().size();
  for (const AddedToken& token : tokens) size = std::max(size, static_cast<size_t>(token.id) + 1);
  bytes.resize(size);
  special.resize(size);
  for (size_t id = 0; id < model.tokens().size(); ++id)
    bytes[id] = decoder.BytesOf(model.tokens()[id], /*is_added=*/false);
  for (const AddedToken& token : tokens) {
    const auto id = static_cast<size_t>(token.id);
    bytes[id] = decoder.BytesOf(token.content, /*is_added=*/true);
    special[id] = token.special;
    takes_spaces |= token.lstrip || token.rstrip;
    token_bytes_max = std::max(token_bytes_max, token.content.size());
    added_ids.emplace(token.content, token.id);
    if (token.normalized && !normalizer.empty()) {
      const std::string spelling = normalizer.Apply(token.content);
      token_bytes_max = std::max(token_bytes_max, spelling.size());
      normalized_tokens.Add(spelling, token);
    } else if (token.normalized) {
      normalized_tokens.Add(token.content, token);
    } else {
      raw_tokens.Add(token.content, token);
    }
  }
}

// After AddTokens. What a vocabulary spells in the byte-level alphabet has a character for each
// byte.
void Tokenizer::Parts::FindLongestToken() {
  if (takes_spaces || !normalizer.KeepsAscii() || !pre_tokenizer.KeepsText() ||
      !model.KnowsEveryByte()) {
    token_bytes_max = 0;
    return;
  }
  for (const std::string& spelling : model.tokens()) {
    const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    const auto bytes = pre_tokenizer.byte_level()
                           ? std::count_if(spelling.begin(), spelling.end(), is_start)
                           : static_cast<ptrdiff_t>(spelling.size());
    token_bytes_max = std::max(token_bytes_max, static_cast<size_t>(bytes));
  }
}

void Tokenizer::Parts::ForgetUnknownNames() {
  for (std::optional<std::string>* name : {&config.bos, &config.eos, &config.unk, &config.pad}) {
    if (name->has_value() && !added_ids.contains(**name) && model.Find(**name) < 0) name->reset();
  }
}

void Tokenizer::Parts::SurroundAsConfigured() {
  const auto id_of = [&](const std::string& name) {
    const auto it = added_ids.find(name);
    return it != added_ids.end() ? it->second : model.Find(name);
  };
  if (config.bos && config.add_bos) {
    const int32_t bos = id_of(*config.bos);
    std::erase(surroundings.before, bos);
    if (*config.add_bos) surroundings.before.insert(surroundings.before.begin(), bos);
  }
  if (config.eos && config.add_eos) {
    const int32_t eos = id_of(*config.eos);
    std::erase(surroundings.after, eos);
    if (*config.add_eos) surroundings.after.push_back(eos);
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer::Parts>> Tokenizer::Assemble(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) try {
  absl::StatusOr<TokenizerJson> parsed = ParseTokenizerJson(tokenizer_json);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<Json> config_json = ParseConfig(tokenizer_config_json);
  if (!config_json.ok()) return config_json.status();
  JsonReader document(parsed->document, "tokenizer.json");
  if (!document.ok()) return document.status();

  absl::StatusOr<PreTokenizer> pre_tokenizer =
      PreTokenizer::FromJson(document.Find("pre_tokenizer"));
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  absl::StatusOr<BpeModel> model = BpeModel::Create(*parsed, pre_tokenizer->byte_level());
  if (!model.ok()) return model.status();
  absl::StatusOr<Normalizer> normalizer = Normalizer::FromJson(document.Find("normalizer"));
  if (!normalizer.ok()) return normalizer.status();
  absl::StatusOr<TokenDecoder> decoder = TokenDecoder::FromJson(document.Find("decoder"));
  if (!decoder.ok()) return decoder.status();
  absl::StatusOr<Surroundings> around = ReadPostProcessor(document.Find("post_processor"));
  if (!around.ok()) return around.status();
  absl::StatusOr<TokenizerConfig> config = ReadTokenizerConfig(*config_json);
  if (!config.ok()) return config.status();
  const auto added = ReadAddedTokens(parsed->document, *config_json);
  if (!added.ok()) return added.status();

  auto parts = std::make_unique<Parts>(*std::move(model), *std::move(normalizer),
                                       *std::move(pre_tokenizer), *std::move(decoder));
  parts->surroundings = *std::move(around);
  parts->config = *std::move(config);
  parts->AddTokens(*added);
  parts->FindLongestToken();
  parts->ForgetUnknownNames();
  parts->SurroundAsConfigured();
  return parts;
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("tokenizer.json: out of memory");
} catch (const std::exception& e) {
  return absl::InvalidArgumentError(std::string("tokenizer.json: ") + e.what());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  auto parts = Assemble(tokenizer_json, tokenizer_config_json);
  if (!parts.ok()) return parts.status();
  return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(parts)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  const std::filesystem::path dir(model_dir);
  const absl::StatusOr<std::string> tokenizer_json = ReadFile(dir / "tokenizer.json");
  if (!tokenizer_json.ok()) return tokenizer_json.status();
  const absl::StatusOr<std::string> config_json = ReadFile(dir / "tokenizer_config.json");
  if (!config_json.ok() && !absl::IsNotFound(config_json.status())) return config_json.status();
  auto parts = Assemble(*tokenizer_json, config_json.ok() ? *config_json : std::string());
  if (!parts.ok())
    return absl::Status(parts.status().code(),
                        model_dir + ": " + std::string(parts.status().message()));
  absl::StatusOr<std::string> chat_template = ReadFile(dir / "chat_template.jinja");
  if (chat_template.ok()) (*parts)->config.chat_template = *std::move(chat_template);
  return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(parts)));
}

}  // namespace skein::engine
