#include "engine/tokenizer/components/added_tokens.h"

#include <charconv>
#include <unordered_set>

#include "engine/tokenizer/bpe/bpe.h"
#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

absl::StatusOr<AddedToken> ReadToken(const Json& json, const std::string& path, int64_t id) {
  JsonReader reader(json, path);
  AddedToken token;
  token.content = reader.String("content", "");
  token.single_word = reader.Bool("single_word", false);
  token.lstrip = reader.Bool("lstrip", false);
  token.rstrip = reader.Bool("rstrip", false);
  token.special = reader.Bool("special", false);
  token.normalized = reader.Bool("normalized", !token.special);
  id = reader.Int("id", id);
  if (!reader.ok()) return reader.status();
  if (id < 0 || id > BpeModel::kIdMax)
    return InvalidField(reader.PathOf("id"), "an id in range", json);
  token.id = static_cast<int32_t>(id);
  return token;
}

absl::Status ReadList(const Json* list, std::vector<AddedToken>* tokens) {
  for (size_t i = 0; list && i < list->size(); ++i) {
    absl::StatusOr<AddedToken> token =
        ReadToken((*list)[i], "added_tokens[" + std::to_string(i) + "]", -1);
    if (!token.ok()) return token.status();
    if (!token->content.empty()) tokens->push_back(*std::move(token));
  }
  return absl::OkStatus();
}

// {"<id>": {"content": …}, …}
absl::Status ReadDecoderMap(const Json* map, std::vector<AddedToken>* tokens) {
  std::unordered_set<std::string> known;
  for (const AddedToken& token : *tokens) known.insert(token.content);
  for (auto it = map ? map->begin() : Json::const_iterator(); map && it != map->end(); ++it) {
    const std::string path = "added_tokens_decoder." + it.key();
    int64_t id = -1;
    const char* end = it.key().data() + it.key().size();
    if (std::from_chars(it.key().data(), end, id).ptr != end)
      return InvalidField(path, "an id as key", it.key());
    absl::StatusOr<AddedToken> token = ReadToken(it.value(), path, id);
    if (!token.ok()) return token.status();
    if (!token->content.empty() && known.insert(token->content).second)
      tokens->push_back(*std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& tokenizer, const Json& config) {
  JsonReader tokenizer_reader(tokenizer, "tokenizer.json");
  JsonReader config_reader(config, "tokenizer_config.json");
  const Json* list = tokenizer_reader.Array("added_tokens");
  const Json* map = config_reader.Object("added_tokens_decoder");
  if (!tokenizer_reader.ok()) return tokenizer_reader.status();
  if (!config_reader.ok()) return config_reader.status();
  std::vector<AddedToken> tokens;
  absl::Status status = ReadList(list, &tokens);
  if (status.ok()) status = ReadDecoderMap(map, &tokens);
  if (!status.ok()) return status;
  return tokens;
}

uint32_t AddedTokenFinder::Child(uint32_t node, unsigned char c) const {
  for (const auto& [byte, child] : nodes_[node].children)
    if (byte == c) return child;
  return 0;
}

void AddedTokenFinder::Add(std::string_view spelling, const AddedToken& token) {
  if (spelling.empty()) return;
  begins_[static_cast<unsigned char>(spelling[0])] = true;
  uint32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, child);
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenFinder::LongestAt(std::string_view text, size_t at, size_t* size) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = Child(node, static_cast<unsigned char>(text[i]));
    if (node == 0) break;
    if (nodes_[node].token < 0) continue;
    longest = nodes_[node].token;
    *size = i + 1 - at;
  }
  return longest;
}

bool AddedTokenFinder::IsAloneAt(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordChar(CharBefore(text, begin))) return false;
  return end == text.size() || !IsWordChar(NextChar(text, &end));
}

void AddedTokenFinder::Cut(std::string_view text, bool skip_special,
                           std::vector<Segment>* segments) const {
  size_t listed = 0;  // end of what the segments cover
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    const int32_t index =
        begins_[static_cast<unsigned char>(text[at])] ? LongestAt(text, at, &size) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = at + size;
    at = end;
    if (skip_special && token.special) continue;
    if (token.single_word && !IsAloneAt(text, begin, end)) continue;
    while (token.lstrip && begin > listed && IsWhiteSpace(CharBefore(text, begin)))
      begin = StartOfCharBefore(text, begin);
    for (size_t next = end; token.rstrip && next < text.size();) {
      if (!IsWhiteSpace(NextChar(text, &next))) break;
      end = next;
    }
    at = end;
    if (begin > listed) segments->push_back({-1, listed, begin});
    segments->push_back({token.id, begin, end});
    listed = end;
  }
  if (listed < text.size()) segments->push_back({-1, listed, text.size()});
}

}  // namespace skein::engine
