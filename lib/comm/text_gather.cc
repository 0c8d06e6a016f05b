#include "comm/text_gather.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshtrain {
namespace {

// Calls send(part, whether it is the last) for the parts of a text that go in one frame each.
template <class Send>
void in_parts(std::string_view text, const Send& send) {
  do {
    const std::string_view part = text.substr(0, kMostPartBytes);
    text.remove_prefix(part.size());
    send(part, static_cast<uint8_t>(text.empty()));
  } while (!text.empty());
}

bool is_empty(const std::deque<std::string>& texts) {
  return texts.empty();
}

}  // namespace

TextGather::TextGather(int rank, int size, Send send, Deliver deliver)
    : rank_(rank), size_(size), send_(std::move(send)), deliver_(std::move(deliver)) {}

void TextGather::start(const GatherRequest& request, double now) {
  if (rank_ == 0) {
    add(0, request, now);
    return;
  }
  in_parts(request.text, [&](std::string_view part, uint8_t is_last) {
    send_(FrameWriter(FrameKind::kGather)
              .put(std::string_view(request.key))
              .put(request.limit)
              .put(static_cast<uint8_t>(request.to_first))
              .put(is_last)
              .put(part)
              .done());
  });
}

bool TextGather::receive(int from, FrameReader& frame, double now) {
  return rank_ == 0 ? receive_at_first(from, frame, now) : receive_at_others(frame);
}

bool TextGather::receive_at_first(int from, FrameReader& frame, double now) {
  GatherRequest given{.key = frame.text(), .text = {}};
  given.limit = frame.get<double>();
  given.to_first = frame.get<uint8_t>() != 0;
  const bool is_last = frame.get<uint8_t>() != 0;
  const auto whole = parts_.try_emplace({from, given.key}).first;
  whole->second += frame.text();
  const bool is_fitting = whole->second.size() <= kMostTextBytes;
  if (is_last && frame.ok()) {
    given.text = std::move(whole->second);
    parts_.erase(whole);
    add(from, std::move(given), now);
  }
  return is_fitting;
}

bool TextGather::receive_at_others(FrameReader& frame) {
  const std::string key = frame.text();
  const auto rank = frame.get<int32_t>();
  const bool is_last = frame.get<uint8_t>() != 0;
  const std::string part = frame.text();
  if (rank < 0 || rank >= size_ || !frame.ok()) {
    return false;
  }
  std::vector<std::string>& texts = incoming_[key];
  texts.resize(static_cast<size_t>(size_));
  texts[static_cast<size_t>(rank)] += part;
  if (is_last && rank == size_ - 1) {
    deliver_(key, std::move(texts));
    incoming_.erase(key);
  }
  return true;
}

void TextGather::add(int rank, GatherRequest given, double now) {
  Entry& entry = entries_[given.key];
  if (entry.texts.empty()) {
    entry.texts.resize(static_cast<size_t>(size_));
    entry.since = now;
  }
  entry.limit = std::max(entry.limit, given.limit);
  entry.to_first = given.to_first;
  entry.texts[static_cast<size_t>(rank)].push_back(std::move(given.text));
  if (std::any_of(entry.texts.begin(), entry.texts.end(), is_empty)) {
    return;
  }
  std::vector<std::string> all;
  for (auto& texts : entry.texts) {
    all.push_back(std::move(texts.front()));
    texts.pop_front();
  }
  entry.since = now;
  const bool to_first = entry.to_first;
  if (std::all_of(entry.texts.begin(), entry.texts.end(), is_empty)) {
    entries_.erase(given.key);
  }
  send_to_all(given.key, all, to_first);
  deliver_(given.key, std::move(all));
}

void TextGather::send_to_all(const std::string& key, const std::vector<std::string>& texts,
                             bool to_first) {
  for (int from = 0; from < size_; ++from) {
    if (to_first && from > 0 && from < size_ - 1) {
      continue;  // the last one's frame says that it is complete
    }
    const std::string_view text =
        to_first && from > 0 ? std::string_view() : texts[static_cast<size_t>(from)];
    in_parts(text, [&](std::string_view part, uint8_t is_last) {
      send_(FrameWriter(FrameKind::kGathered)
                .put(std::string_view(key))
                .put(static_cast<int32_t>(from))
                .put(is_last)
                .put(part)
                .done());
    });
  }
}

std::vector<Waiting> TextGather::waiting(double now) const {
  std::vector<Waiting> list;
  for (const auto& [key, entry] : entries_) {
    Waiting wait = {fmt::format("`{}`", key), now - entry.since, entry.limit, {}};
    for (const auto& texts : entry.texts) {
      wait.came.push_back(!texts.empty());
    }
    list.push_back(std::move(wait));
  }
  return list;
}

}  // namespace meshtrain
