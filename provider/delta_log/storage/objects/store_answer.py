"""What a store answered to a request that failed.

obstore has a type for some errors, and tells the rest in a text: the status of the answer and its body. So this module is the only one
that reads the text. It reads what the store said there, never the words of the client.
"""

from __future__ import annotations

import re
from html import unescape

from msgspec import Struct

#: Separates what an error says from a description of its parts, which repeats it.
_DETAILS = "\n\nDebug source:"
_STATUS_BEFORE = "Server returned non-2xx status code: "
_STATUS = re.compile(rf"{_STATUS_BEFORE}(\d{{3}})[^:]*: ?(.*)", re.DOTALL)
_ERROR_IN_ANSWER = "Server returned error response: "
_REDIRECT = "Received redirect without LOCATION"
#: Where there was no answer: the kind of failure, and behind it what the system said of it, between quotation marks.
_NO_ANSWER = re.compile(r"HttpError \{\s*kind: (\w+)(.*)", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_METHOD = re.compile(r"Error performing ([A-Z]+) ")
#: One object of several that one request should delete: its key, what the store says, and the code or the status.
_NOT_DELETED = re.compile(r"request failed for key (.*?): (.*) \(code: (\w*)\)", re.DOTALL)
_FIRST_SERVER_ERROR = 500


class StoreAnswer(Struct, frozen=True):
    """The answer to a request that failed.

    :param said: what the error says, in one line, for a message.
    :param method: method of the request; empty: it is not known.
    :param status: status of the answer; 0: there was no answer, or the client told none.
    :param body: XML that the store sent. Answers to HEAD and redirects have none, and of a server's error the client keeps none.
    :param key: key of the object that was not deleted, if the request should have deleted several.
    """

    said: str
    method: str = ""
    status: int = 0
    body: str = ""
    key: str = ""
    deletion_code: str = ""

    @classmethod
    def of(cls, error: BaseException) -> StoreAnswer:
        """
        :param error: exception of obstore.
        """
        text, _, details = str(error).partition(_DETAILS)
        method = _METHOD.search(text)
        asked = method[1] if method else ""
        deletion = _NOT_DELETED.search(text)
        if deletion is not None:
            key, said, code = deletion.groups()
            status = int(code) if code.isdigit() else 0
            return cls(f"{code}: {said}", "DELETE", status, key=key, deletion_code=code)
        found = _STATUS.search(text)
        if found is not None:
            return cls(_in_one_line(found[0].removeprefix(_STATUS_BEFORE)), asked, int(found[1]), found[2])
        if _ERROR_IN_ANSWER in text:
            return cls(_in_one_line(text), asked, 200, text.partition(_ERROR_IN_ANSWER)[2])
        if _REDIRECT in text:
            return cls(_in_one_line(text), asked, 301)
        no_answer = _NO_ANSWER.search(details)
        if no_answer is not None:
            # An address may hold a token.
            quoted = [said for said in _QUOTED.findall(no_answer[2]) if "://" not in said]
            return cls(_in_one_line(": ".join(quoted) or no_answer[1]), asked)
        return cls(_in_one_line(text), asked)

    @property
    def code(self) -> str:
        """The store's code of the error; empty: its answer has none."""
        return self.deletion_code or self.field("Code")

    @property
    def message(self) -> str:
        """The store's words; where it has none, the client's."""
        return " ".join(self.field("Message").split()) or self.said

    def field(self, name: str) -> str:
        """Return the text of an element of the body; empty: there is none."""
        found = re.search(rf"<{name}>([^<]*)</{name}>", self.body)
        return unescape(found[1]).strip() if found else ""

    @property
    def is_refusal(self) -> bool:
        return self.status in (401, 403)

    @property
    def has_no_reason(self) -> bool:
        """Whether the answer to a question for an object is a refusal, which then has no body to say why."""
        return self.method == "HEAD" and self.status in (400, 401, 403, 409)

    @property
    def is_busy(self) -> bool:
        """Whether the store asks for patience in a way in which the client has none by itself."""
        return self.status in (408, 429)

    @property
    def may_be_lost(self) -> bool:
        """Whether the request may have taken effect although it failed."""
        return self.status == 0 or self.status >= _FIRST_SERVER_ERROR


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
