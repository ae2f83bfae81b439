"""Words of other languages for what a training log tells: loss, step, epoch and the like, as English ones."""

from __future__ import annotations

import re
import unicodedata

_PARTS = {
    "loss": ("损失", "損失", "손실", "потери", "потерь"),
    "learning rate": ("学习率", "學習率", "学習率", "학습률", "скорость обучения"),
    "grad norm": ("梯度范数",),
    "train": ("训练", "訓練", "훈련", "학습", "обучение", "обучения", "обучении"),
    "validation": ("验证", "驗證", "検証", "검증", "валидация", "валидации"),
    "test": ("测试", "測試", "テスト", "테스트", "тест"),
    "epoch": ("轮", "輪", "エポック", "에포크", "эпоха", "эпохи"),
    "iteration": ("迭代", "итерация"),
    "step": ("训练次数", "训练步数", "步", "ステップ", "스텝", "шаг"),
    "": ("第",),
}
"""English → writings that need no blanks around them."""
_SIGNS = str.maketrans(
    {"：": ": ", "，": ", ", "；": "; ", "、": ", ", "（": "(", "）": ")", "【": "[", "】": "]", "％": "%", "−": "-"}
)
_WORDS = {
    "train loss": ("trainingsverlust",),
    "validation loss": ("validierungsverlust",),
    "learning_rate": ("lernrate", "taux d'apprentissage"),
    "loss": ("perdida", "perda", "perdita", "perte", "verlust"),
    "train": ("entrenamiento", "treino", "treinamento", "addestramento", "entrainement", "apprentissage"),
    "validation": ("validacion", "validacao", "validazione", "validierung"),
    "epoch": ("epoca", "epoque", "epoche", "rodada", "ronda", "runde", "episodio"),
    "step": ("paso", "passo", "schritt"),
}
"""English → words without accents."""
_ENGLISH = {part: f"{word} " for word, parts in _PARTS.items() for part in parts}
_PART = re.compile("|".join(sorted(_ENGLISH, key=len, reverse=True)), re.IGNORECASE)
_ENGLISH_WORD = {other: word for word, others in _WORDS.items() for other in others}
_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(_ENGLISH_WORD)})(?![a-z])")


def with_english_parts(text: str) -> str:
    """A line with the words of languages that write none apart in English, and their signs as usual.

    >>> with_english_parts("第3轮：训练损失 2.5")
    ' 3epoch : train loss  2.5'
    """
    if text.isascii():
        return text
    return _PART.sub(lambda found: _ENGLISH[found[0].casefold()], text.translate(_SIGNS))


def in_english(name: str) -> str:
    """A name in small letters, in English words.

    >>> [in_english(name) for name in ("pérdida de validación", "学习率", "verlust")]
    ['loss de validation', 'learning rate ', 'loss']
    """
    if not name.isascii():
        name = with_english_parts(name)
        name = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return _WORD.sub(lambda found: _ENGLISH_WORD[found[0]], name)
